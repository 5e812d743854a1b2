//! The texts of images by beam search. Beams of an image share pages of the cache.

use hipvit::error::{Error, Result};
use hipvit::image::{RgbImage, Tiles};

use crate::beam::{BeamRules, Search};
use crate::generator::Generator;
use crate::pages::{PAGE, Pages};
use crate::prompt::{First, first_tokens, grid};
use crate::sampling::GenerateOptions;
use crate::step_inputs::Row;
use crate::text::{Finish, Generated, KNOWN};

/// The part of the cache that a beam has.
#[derive(Debug, Default)]
struct Table {
    pages: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    cached: usize,
}

impl Table {
    /// Returns the table of another continuation of the beam. Full pages are shared. The tokens of the last page are computed again, in a page of its own.
    fn fork(&self, pages: &mut Pages) -> Self {
        let full = self.cached / PAGE;
        Self {
            pages: pages.share(&self.pages[..full]),
            cached: full * PAGE,
        }
    }
}

/// An image in progress.
struct Searched {
    search: Search,
    first: First,
    /// Number of the image in the cache.
    image: usize,
    /// The table of each beam.
    tables: Vec<Table>,
}

impl Searched {
    /// Returns the number of tokens of a beam that are not cached.
    fn backlog(&self, index: usize) -> usize {
        self.search.beams[index].tokens.len() - self.tables[index].cached
    }

    /// Returns the rows of a beam's tokens that are not cached.
    fn rows(&self, index: usize) -> impl Iterator<Item = Row<'_>> {
        let (beam, table) = (&self.search.beams[index], &self.tables[index]);
        let tokens = beam.tokens.iter().enumerate().skip(table.cached);
        tokens.map(|(position, &token)| Row {
            token,
            position,
            pages: &table.pages,
            image: self.image,
            feature: self.first.feature(position),
        })
    }

    /// Gives each new beam the table of its parent, or a fork of it.
    fn follow(&mut self, parents: &[usize], pages: &mut Pages) {
        let mut old: Vec<Option<Table>> = std::mem::take(&mut self.tables).into_iter().map(Some).collect();
        for (index, &parent) in parents.iter().enumerate() {
            let table = if parents[index + 1..].contains(&parent) {
                old[parent].as_ref().map(|table| table.fork(pages))
            } else {
                // The last continuation takes the pages.
                old[parent].take()
            };
            self.tables.push(table.unwrap_or_default());
        }
        for table in old.iter_mut().flatten() {
            pages.release(&mut table.pages);
        }
    }
}

impl Generator {
    /// Returns the rules of a beam search, or `None` for texts with one beam.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for beams with a random choice or with drafts.
    pub(crate) fn beam_rules(&self, options: &GenerateOptions) -> Result<Option<BeamRules>> {
        let files = &self.decoder.spec().rules.beams;
        let is_single = options.sampling.is_some() || options.draft > 0;
        let beams = match options.beams {
            Some(0) => return Err(Error::argument("beams", "are 0; at least one is needed")),
            Some(beams) if beams > 1 && is_single => {
                let reason = "exclude a random choice of tokens and drafts. Use one beam";
                return Err(Error::argument("beams", reason));
            }
            Some(beams) => beams,
            None if is_single => 1,
            None => files.beams,
        };
        Ok((beams > 1).then(|| BeamRules {
            beams,
            ..files.clone()
        }))
    }

    /// Makes the texts of images by beam search, as many images at a time as the cache has room for. `each` gets the tokens of a text when it is complete.
    pub(crate) fn search_all(
        &mut self,
        images: &[RgbImage],
        options: &GenerateOptions,
        rules: &BeamRules,
        each: &mut dyn FnMut(usize, u32),
    ) -> Result<Vec<Generated>> {
        let tiles = self.tiles(&images.into())?;
        let spec = self.decoder.spec();
        let mut started = Vec::with_capacity(images.len());
        for index in 0..images.len() {
            let grid = grid(tiles.as_deref(), index);
            let first = first_tokens(spec, &self.detokenizer, options.prompt.as_deref(), grid)?;
            let length = spec.length(options.max_tokens, first.tokens.len())?;
            started.push((first, length));
        }
        let length = started.iter().map(|(_, length)| *length).max().unwrap_or(1);
        // The last token is not cached.
        let each_text = (length - 1).div_ceil(PAGE) * rules.beams;
        let all = self.pages().1;
        let together = (all / each_text).min(self.vacant());
        if together == 0 {
            let reason = format!(
                "{} of {length} tokens need {each_text} pages of the cache, which has {all}. Use fewer beams or tokens, or a larger batch",
                rules.beams
            );
            return Err(Error::argument("beams", reason));
        }
        let mut texts = Vec::with_capacity(images.len());
        let mut tiles = tiles.map(Vec::into_iter);
        for (images, started) in images.chunks(together).zip(started.chunks(together)) {
            let tiles = tiles.as_mut().map(|all| all.take(images.len()).collect());
            for tokens in self.search(images, tiles, started, rules)? {
                let index = texts.len();
                let ends = &self.decoder.spec().rules.ends;
                let is_end = tokens.last().is_some_and(|last| ends.contains(last));
                tokens.iter().for_each(|&token| each(index, token));
                texts.push(Generated {
                    text: self.detokenizer.text(&tokens)?,
                    finish: if is_end { Finish::End } else { Finish::Length },
                    tokens,
                });
            }
        }
        Ok(texts)
    }

    /// Returns the tokens of the best text of each image. `started` are the first tokens and the maximum length of each.
    fn search(
        &mut self,
        images: &[RgbImage],
        tiles: Option<Vec<Tiles>>,
        started: &[(First, usize)],
        rules: &BeamRules,
    ) -> Result<Vec<Vec<u32>>> {
        self.cancel_all();
        let numbers = self.encode_images(images.into(), tiles)?;
        let spec = &self.decoder.spec().rules;
        let (repetition, ends) = (&spec.repetition, &spec.ends);
        let search = |(first, length): &(First, usize)| {
            let first = first.tokens.clone();
            Search::new(first, *length, rules, repetition, ends, spec.forced_end)
        };
        let mut searched: Vec<Searched> = numbers
            .into_iter()
            .zip(started)
            .map(|(image, started)| Searched {
                search: search(started),
                first: started.0.clone(),
                image,
                tables: vec![Table::default()],
            })
            .collect();
        while searched.iter().any(|image| !image.search.is_done()) {
            self.advance(&mut searched)?;
        }
        self.cancel_all();
        let tokens = |image: &Searched| image.search.best().to_vec();
        Ok(searched.iter().map(tokens).collect())
    }

    /// Continues the beams of all images by a token.
    fn advance(&mut self, searched: &mut [Searched]) -> Result<()> {
        for image in searched.iter_mut().filter(|image| !image.search.is_done()) {
            for (beam, table) in image.search.beams.iter().zip(&mut image.tables) {
                if !self.pages.grow(&mut table.pages, beam.tokens.len()) {
                    return Err(Error::internal("cache", "has too few pages for its beams"));
                }
            }
        }
        // The tokens of long prompts, but for the last ones.
        for image in searched.iter_mut().filter(|image| !image.search.is_done()) {
            for index in 0..image.tables.len() {
                while image.backlog(index) > KNOWN {
                    let rows = image.rows(index).take(KNOWN).collect::<Vec<_>>();
                    let outputs = self.decoder.step(&rows, false)?;
                    if (0..rows.len()).any(|row| outputs.has_nan(row)) {
                        return Err(self.not_a_number());
                    }
                    image.tables[index].cached += KNOWN;
                }
            }
        }
        let mut rows = Vec::new();
        // The last row of each beam.
        let mut last = Vec::new();
        for image in searched.iter().filter(|image| !image.search.is_done()) {
            for index in 0..image.tables.len() {
                rows.extend(image.rows(index));
                last.push(rows.len() - 1);
            }
        }
        let outputs = self.decoder.step(&rows, true)?;
        if last.iter().any(|&row| outputs.has_nan(row)) {
            return Err(self.not_a_number());
        }
        let logits = outputs.into_logits()?;
        let mut last = last.into_iter();
        for image in searched.iter_mut().filter(|image| !image.search.is_done()) {
            let rows: Vec<usize> = last.by_ref().take(image.tables.len()).collect();
            let of_beams = rows.iter().map(|&row| logits.row(row).to_slice());
            let of_beams: Option<Vec<&[f32]>> = of_beams.collect();
            let of_beams = of_beams.ok_or_else(|| Error::internal("logits", "are not contiguous"))?;
            for (beam, table) in image.search.beams.iter().zip(&mut image.tables) {
                table.cached = beam.tokens.len();
            }
            let parents = image.search.advance(&of_beams);
            image.follow(&parents, &mut self.pages);
            if image.search.is_done() {
                for table in &mut image.tables {
                    self.pages.release(&mut table.pages);
                }
            }
        }
        Ok(())
    }
}
