//! The texts of images by beam search. Beams of an image share pages of the cache.

use hipvit::error::{Error, Result};
use hipvit::image::RgbImage;

use crate::beam::BeamRules;
use crate::generator::Generator;
use crate::prompt::{first_tokens, grid};
use crate::sampling::GenerateOptions;
use crate::searched::{Searched, ToSearch, check_pages};
use crate::text::{Event, Finish, Generated, KNOWN, Progress, TextId};

impl Generator {
    /// Makes the texts of images by beam search, as many images at a time as the cache has room for. `each` gets the tokens of a text when it is complete.
    pub(crate) fn search_all(
        &mut self,
        images: &[RgbImage],
        options: &GenerateOptions,
        rules: &BeamRules,
        each: &mut dyn FnMut(usize, u32),
    ) -> Result<Vec<Generated>> {
        let tiles = self.tiles(&images.into())?;
        let mut started = Vec::with_capacity(images.len());
        for index in 0..images.len() {
            started.push(self.to_search(options, rules.clone(), grid(tiles.as_deref(), index))?);
        }
        let all = self.pages().1;
        for text in &started {
            check_pages(text, all)?;
        }
        let most = started.iter().map(ToSearch::pages).max().unwrap_or(1);
        let together = (all / most.max(1)).min(self.vacant()).max(1);
        let mut texts = Vec::with_capacity(images.len());
        let mut tiles = tiles.map(Vec::into_iter);
        let mut started = started.into_iter();
        for images in images.chunks(together) {
            let tiles = tiles.as_mut().map(|all| all.take(images.len()).collect());
            self.cancel_all();
            let numbers = self.encode_images(images.into(), tiles)?;
            let begun = numbers.into_iter().zip(started.by_ref());
            let mut searched: Vec<Searched> = begun
                .map(|(image, text)| {
                    Searched::new(TextId::default(), text, image, &self.decoder.spec().rules)
                })
                .collect();
            while searched.iter().any(|image| !image.is_done()) {
                self.advance(&mut searched)?;
            }
            self.cancel_all();
            for image in &searched {
                let index = texts.len();
                let text = self.best(image)?;
                text.tokens.iter().for_each(|&token| each(index, token));
                texts.push(text);
            }
        }
        Ok(texts)
    }

    /// Returns what a search needs for an image of these rows and columns of tiles.
    pub(crate) fn to_search(
        &self,
        options: &GenerateOptions,
        rules: BeamRules,
        grid: [usize; 2],
    ) -> Result<ToSearch> {
        let spec = self.decoder.spec();
        let first = first_tokens(spec, &self.detokenizer, options.prompt.as_deref(), grid)?;
        let length = spec.length(options.max_tokens, first.tokens.len())?;
        Ok(ToSearch { rules, first, length })
    }

    /// Returns the best text of a search that is done.
    fn best(&self, searched: &Searched) -> Result<Generated> {
        if searched.has_nan {
            return Err(self.not_a_number());
        }
        let tokens = searched.search.best().to_vec();
        let ends = &self.decoder.spec().rules.ends;
        let is_end = tokens.last().is_some_and(|last| ends.contains(last));
        Ok(Generated {
            text: self.detokenizer.text(&tokens)?,
            finish: if is_end { Finish::End } else { Finish::Length },
            prompt_tokens: searched.first.prompt_tokens,
            tokens,
        })
    }

    /// Frees the place of a search whose pages are released.
    pub(crate) fn leave(&mut self, searched: &Searched) {
        if let Some(model) = &mut self.draft_model {
            model.cancel(searched.id);
        }
        self.numbers.push(searched.image);
    }

    /// Continues the searches in progress by a token. Those that are done leave.
    pub(crate) fn step_searches(&mut self) -> Result<Vec<Progress>> {
        if self.searching.is_empty() {
            return Ok(Vec::new());
        }
        let mut searching = std::mem::take(&mut self.searching);
        let advanced = self.advance(&mut searching);
        let (done, rest) = searching.into_iter().partition(Searched::is_done);
        self.searching = rest;
        advanced?;
        let mut events = Vec::new();
        let done: Vec<Searched> = done;
        for searched in done {
            self.leave(&searched);
            let text = searched.id;
            let best = self.best(&searched);
            let tokens = best.iter().flat_map(|best| &best.tokens);
            events.extend(tokens.map(|&token| Progress {
                text,
                event: Event::Token(token),
            }));
            let event = best.map_or_else(Event::Failed, Event::Finished);
            events.push(Progress { text, event });
        }
        Ok(events)
    }

    /// Continues the beams of all images by a token.
    fn advance(&mut self, searched: &mut [Searched]) -> Result<()> {
        for image in searched.iter_mut().filter(|image| !image.is_done()) {
            for (beam, table) in image.search.beams.iter().zip(&mut image.tables) {
                if !self.pages.grow(&mut table.pages, beam.tokens.len()) {
                    return Err(Error::internal("cache", "has too few pages for its beams"));
                }
            }
        }
        // The tokens of long prompts, but for the last ones.
        for image in searched.iter_mut().filter(|image| !image.is_done()) {
            for index in 0..image.tables.len() {
                while image.backlog(index) > KNOWN && !image.has_nan {
                    let rows = image.rows(index).take(KNOWN).collect::<Vec<_>>();
                    let outputs = self.decoder.step(&rows, false)?;
                    image.has_nan = (0..rows.len()).any(|row| outputs.has_nan(row));
                    image.tables[index].cached += KNOWN;
                }
            }
        }
        let mut rows = Vec::new();
        // The last row of each beam.
        let mut last = Vec::new();
        for image in searched.iter().filter(|image| !image.is_done()) {
            for index in 0..image.tables.len() {
                rows.extend(image.rows(index));
                last.push(rows.len() - 1);
            }
        }
        if !rows.is_empty() {
            let searches = searched.iter().filter(|image| !image.is_done());
            let kept = searches.map(|image| image.search.kept()).max().unwrap_or(1);
            let (outputs, best) = self.decoder.step_beams(&rows, kept)?;
            let mut rows = last.into_iter();
            for image in searched.iter_mut().filter(|image| !image.is_done()) {
                let rows: Vec<usize> = rows.by_ref().take(image.tables.len()).collect();
                image.has_nan = rows.iter().any(|&row| outputs.has_nan(row));
                if image.has_nan {
                    continue;
                }
                for (beam, table) in image.search.beams.iter().zip(&mut image.tables) {
                    table.cached = beam.tokens.len();
                }
                let candidates: Vec<_> = rows.into_iter().map(|row| best.of_row(row)).collect();
                let parents = image.search.advance(&candidates);
                image.follow(&parents, &mut self.pages);
            }
        }
        for image in searched.iter_mut().filter(|image| image.is_done()) {
            image.release(&mut self.pages);
        }
        Ok(())
    }
}
