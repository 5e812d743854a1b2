//! The schedule of texts in progress: they enter and leave between steps.

use std::borrow::Borrow;
use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::TimedCall;
use hipvit::graph::plan::Plan;
use hipvit::image::{RgbImage, Tiles};
use hipvit::timeline::{self, Activity};
use hipvit::{RunInput, RunOptions};
use ndarray::ArrayView3;

use crate::decoder::{Encoded, StepOutputs};
use crate::draft::{self, Speculation};
use crate::draft_model::Wanted;
use crate::generator::Generator;
use crate::pages::PAGE;
use crate::prompt::{first_tokens, grid_of};
use crate::sampling::GenerateOptions;
use crate::searched::{Searched, ToSearch, beam_rules, check_pages};
use crate::step_inputs::Row;
use crate::text::{Event, Finish, Generated, Progress, Sequence, TextId, TextRules};

/// A text to be made of an image.
enum ToMake {
    One(TextRules),
    Search(ToSearch),
}

/// What follows a text in progress.
enum Choice {
    /// Logits are NaN.
    NotANumber,
    /// Tokens that the text has already, and not yet its last one.
    Known,
    /// The next token, and those after it that the draft has guessed.
    Tokens(Vec<u32>),
}

/// Returns the tokens that follow a text whose last token is row `last`: as many as the draft has guessed, and the next one.
fn following(sequence: &Sequence, outputs: &StepOutputs, last: usize) -> Choice {
    let mut tokens = Vec::new();
    for guess in 0..=sequence.draft.len() {
        let row = last + guess;
        if outputs.has_nan(row) {
            return Choice::NotANumber;
        }
        let forced = sequence.forced(sequence.tokens.len() + guess);
        let token = forced.unwrap_or_else(|| outputs.token(row));
        tokens.push(token);
        if sequence.draft.get(guess) != Some(&token) {
            break;
        }
    }
    Choice::Tokens(tokens)
}

impl Generator {
    /// Returns how many texts can be started now.
    pub fn vacant(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number of texts in progress.
    pub fn running(&self) -> usize {
        self.active.len() + self.searching.len()
    }

    /// Returns the number of pages that texts use, and of all pages of the cache.
    pub fn pages(&self) -> (usize, usize) {
        (self.pages.count() - self.pages.unused(), self.pages.count())
    }

    /// Encodes images, and starts their texts. There are options for each image.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] if there are more images than [`vacant`](Self::vacant), if their number differs from that of the options, or for options
    ///   out of range.
    /// - [`Error::Argument`] for beams beside which the cache has too few pages, see [`has_pages`](Self::has_pages).
    /// - The errors of [`Session::run_with`](hipvit::Session::run_with).
    pub fn start<'a>(
        &mut self,
        images: impl Into<RunInput<'a>>,
        options: &[GenerateOptions],
    ) -> Result<Vec<TextId>> {
        let images = images.into();
        let for_drafts = images.clone();
        let texts = match self.tiles(&images)? {
            Some(tiles) => self.start_tiles(&tiles, options)?,
            None => {
                let texts = self.texts_to_make(options, None)?;
                let numbers = self.encode_images(images, None)?;
                self.start_all(numbers, texts)?
            }
        };
        if let Err(error) = self.start_drafts(for_drafts, options, &texts) {
            texts.iter().for_each(|&text| _ = self.cancel(text));
            return Err(error);
        }
        Ok(texts)
    }

    /// Encodes the tiles of images, and starts their texts. There are options for each image.
    ///
    /// # Errors
    ///
    /// The errors of [`start`](Self::start), and [`Error::Argument`] for a decoder that does not read tiles.
    pub fn start_tiles<T: Borrow<Tiles>>(
        &mut self,
        tiles: &[T],
        options: &[GenerateOptions],
    ) -> Result<Vec<TextId>> {
        if self.tiling.is_none() {
            let reason = "are not taken: the model reads whole images. Start the images";
            return Err(Error::argument("tiles", reason));
        }
        let grids = tiles
            .iter()
            .map(|tiles| grid_of(tiles.borrow()))
            .collect::<Vec<_>>();
        let texts = self.texts_to_make(options, Some(&grids))?;
        let numbers = self.encode_tiles(tiles)?;
        self.start_all(numbers, texts)
    }

    /// Divides images, for a decoder that reads their tiles. `None` for another one.
    pub(crate) fn tiles(&self, images: &RunInput<'_>) -> Result<Option<Vec<Tiles>>> {
        let Some(tiling) = &self.tiling else {
            return Ok(None);
        };
        let RunInput::Images(images) = images else {
            let reason = "are no decoded images, which this model divides into tiles. Resize on the host";
            return Err(Error::argument("images", reason));
        };
        let tiles: Result<Vec<Tiles>> = images.iter().map(|image| Ok(tiling.split(image)?)).collect();
        tiles.map(Some)
    }

    /// Encodes images. Returns their numbers in the cache, which are taken.
    pub(crate) fn encode_images(
        &mut self,
        images: RunInput<'_>,
        tiles: Option<Vec<Tiles>>,
    ) -> Result<Vec<usize>> {
        if let Some(tiles) = tiles {
            return self.encode_tiles(&tiles);
        }
        let missing = || Error::internal("encoder", "returns no tokens");
        if self.session.output_gpu().is_some() {
            let outputs = self.session.run_on_gpu(images, RunOptions::new())?;
            let tokens = outputs.all_tokens().ok_or_else(missing)?;
            return self.encode(Encoded::Gpu(tokens), tokens.shape()[0]);
        }
        let outputs = self.session.run_with(images, RunOptions::new())?;
        let tokens = outputs.tokens.as_ref().ok_or_else(missing)?;
        self.encode(Encoded::Host(tokens.into()), tokens.dim().0)
    }

    /// Starts texts of images that the [session](Self::session) has encoded. `tokens` are its tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are more images than [`vacant`](Self::vacant), if their number differs from that of the options, or for
    /// options out of range.
    pub fn start_encoded(
        &mut self,
        tokens: ArrayView3<'_, f32>,
        options: &[GenerateOptions],
    ) -> Result<Vec<TextId>> {
        if self.tiling.is_some() {
            let reason = "of tiles are not taken: the model divides images itself. Start the images";
            return Err(Error::argument("tokens", reason));
        }
        let texts = self.texts_to_make(options, None)?;
        let images = tokens.dim().0;
        if images != texts.len() {
            return Err(Self::other_number(texts.len(), images));
        }
        let numbers = self.encode(Encoded::Host(tokens.as_standard_layout()), images)?;
        self.start_all(numbers, texts)
    }

    fn other_number(options: usize, images: usize) -> Error {
        let reason = format!("are {options}, for {images} images. Give options for each image");
        Error::argument("options", reason)
    }

    /// Starts the texts of images with these numbers in the cache.
    fn start_all(&mut self, numbers: Vec<usize>, texts: Vec<ToMake>) -> Result<Vec<TextId>> {
        if numbers.len() != texts.len() {
            let error = Self::other_number(texts.len(), numbers.len());
            self.numbers.extend(numbers);
            return Err(error);
        }
        let mut ids = Vec::with_capacity(texts.len());
        for (text, image) in texts.into_iter().zip(numbers) {
            let id = TextId(self.started);
            self.started += 1;
            ids.push(id);
            match text {
                ToMake::One(rules) => self.active.push(Sequence::new(id, rules, image)),
                ToMake::Search(text) => {
                    let rules = &self.decoder.spec().rules;
                    self.searching.push(Searched::new(id, text, image, rules));
                }
            }
        }
        self.give_way();
        Ok(ids)
    }

    /// Returns the number of unused pages that are kept for searches.
    fn kept(&self) -> usize {
        let kept = |searched: &Searched| searched.promised.saturating_sub(searched.used());
        self.searching.iter().map(kept).sum()
    }

    /// Takes the pages of the last texts of one beam until there are enough for searches. Their tokens are computed again later.
    fn give_way(&mut self) {
        let kept = self.kept();
        let mut victims = self.active.iter_mut().rev().filter(|text| !text.pages.is_empty());
        while self.pages.unused() < kept
            && let Some(victim) = victims.next()
        {
            self.pages.release(&mut victim.pages);
            victim.cached = 0;
        }
    }

    /// Returns true if a text with these options can be started now, if a place is [vacant](Self::vacant). Beams need more pages than are free while others
    /// search. `tiles` are those of the image, for a decoder that reads them.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for options that the model cannot follow.
    pub fn has_pages(&self, options: &GenerateOptions, tiles: Option<&Tiles>) -> Result<bool> {
        let spec = self.decoder.spec();
        let Some(rules) = beam_rules(spec, options)? else {
            return Ok(true);
        };
        let text = self.to_search(options, rules, tiles.map_or([0, 0], grid_of))?;
        check_pages(&text, self.pages.count())?;
        let promised: usize = self.searching.iter().map(|searched| searched.promised).sum();
        // Beside searches, there is room for the longest text of one beam.
        let most = self.pages.count().saturating_sub(spec.context.div_ceil(PAGE));
        Ok(promised == 0 || promised + text.pages() <= most)
    }

    /// Encodes the tiles of images. Returns the images' numbers in the cache, which are taken.
    fn encode_tiles<T: Borrow<Tiles>>(&mut self, tiles: &[T]) -> Result<Vec<usize>> {
        let numbers = self.take_numbers(tiles.len())?;
        let written = self.write_tiles(tiles, &numbers);
        if let Err(error) = written {
            self.numbers.extend(numbers);
            return Err(error);
        }
        Ok(numbers)
    }

    fn write_tiles<T: Borrow<Tiles>>(&self, tiles: &[T], numbers: &[usize]) -> Result<()> {
        let missing = || Error::internal("encoder", "returns no tokens");
        let most = self.decoder.cache().tiles;
        let of_images = tiles.iter().zip(numbers).flat_map(|(tiles, &number)| {
            let places = number * most..;
            let tiles: &Tiles = tiles.borrow();
            tiles.images.iter().zip(places)
        });
        let (images, places): (Vec<&RgbImage>, Vec<usize>) = of_images.unzip();
        let batch = self.session.batch();
        for (images, places) in images.chunks(batch).zip(places.chunks(batch)) {
            let images = RunInput::Images(images.to_vec());
            if self.session.output_gpu().is_some() {
                let outputs = self.session.run_on_gpu(images, RunOptions::new())?;
                let tokens = outputs.all_tokens().ok_or_else(missing)?;
                self.decoder.write_images(Encoded::Gpu(tokens), places)?;
            } else {
                let outputs = self.session.run_with(images, RunOptions::new())?;
                let tokens = outputs.tokens.as_ref().ok_or_else(missing)?;
                self.decoder.write_images(Encoded::Host(tokens.into()), places)?;
            }
        }
        Ok(())
    }

    /// Returns what is needed to make texts, for which there must be room. `grids` are the rows and columns of the images' tiles.
    fn texts_to_make(
        &self,
        options: &[GenerateOptions],
        grids: Option<&[[usize; 2]]>,
    ) -> Result<Vec<ToMake>> {
        let (images, vacant) = (options.len(), self.vacant());
        if images > vacant {
            let reason =
                format!("are {images}, and {vacant} texts can be started now. Start the others after a step");
            return Err(Error::argument("images", reason));
        }
        let mut promised: usize = self.searching.iter().map(|searched| searched.promised).sum();
        let mut to_make = |(index, options)| {
            let grid = grids
                .and_then(|grids| grids.get(index))
                .copied()
                .unwrap_or_default();
            let Some(rules) = beam_rules(self.decoder.spec(), options)? else {
                return self.text_rules(options, grid).map(ToMake::One);
            };
            let text = self.to_search(options, rules, grid)?;
            promised += text.pages();
            check_pages(&text, self.pages.count().saturating_sub(promised - text.pages()))?;
            Ok(ToMake::Search(text))
        };
        options.iter().enumerate().map(&mut to_make).collect()
    }

    /// Writes the encoder's tokens of images to the cache. Returns the images' numbers, which are taken.
    pub(crate) fn encode(&mut self, tokens: Encoded<'_>, images: usize) -> Result<Vec<usize>> {
        let numbers = self.take_numbers(images)?;
        if let Err(error) = self.decoder.write_images(tokens, &numbers) {
            self.numbers.extend(numbers);
            return Err(error);
        }
        Ok(numbers)
    }

    /// Takes numbers in the cache.
    fn take_numbers(&mut self, images: usize) -> Result<Vec<usize>> {
        let first = self.numbers.len().checked_sub(images);
        let first = first.ok_or_else(|| Error::internal("images", "are more than the cache has room for"))?;
        Ok(self.numbers.drain(first..).rev().collect())
    }

    fn text_rules(&self, options: &GenerateOptions, grid: [usize; 2]) -> Result<TextRules> {
        options.check()?;
        let spec = self.decoder.spec();
        let first = first_tokens(spec, &self.detokenizer, options.prompt.as_deref(), grid)?;
        Ok(TextRules {
            length: spec.length(options.max_tokens, first.tokens.len())?,
            first,
            forced_end: spec.rules.forced_end,
            sampling: options.sampling.clone(),
            draft: options.draft,
            index: options.first_index,
        })
    }

    /// Computes a token of each text in progress, or several with a [draft](GenerateOptions::draft). Texts that are complete leave.
    ///
    /// A text has no event while the tokens of a long prompt are computed, or if the cache was full in an earlier step: its tokens are computed again first.
    ///
    /// # Errors
    ///
    /// The errors of a run. All texts stay in progress.
    pub fn step(&mut self) -> Result<Vec<Progress>> {
        let mut events = self.step_searches()?;
        self.reserve()?;
        self.guess()?;
        if !self.active.iter().any(Sequence::is_computed) {
            return Ok(events);
        }
        let choices = self.choose()?;
        let rules = &self.decoder.spec().rules;
        let mut ended = Vec::new();
        let computed = self.active.iter_mut().filter(|sequence| sequence.is_computed());
        for (sequence, choice) in computed.zip(choices) {
            let text = sequence.id;
            let draft = std::mem::take(&mut sequence.draft);
            let tokens = match choice {
                Choice::NotANumber => {
                    ended.push((text, None));
                    continue;
                }
                Choice::Known => {
                    sequence.cached += sequence.known();
                    continue;
                }
                Choice::Tokens(tokens) => tokens,
            };
            // The last of them counts with the first new token.
            sequence.cached += sequence.known() - 1;
            self.speculation.steps += 1;
            self.speculation.drafted += draft.len();
            for (index, &token) in tokens.iter().enumerate() {
                sequence.cached += 1;
                sequence.tokens.push(token);
                self.speculation.tokens += 1;
                self.speculation.accepted += usize::from(draft.get(index) == Some(&token));
                let event = Event::Token(token);
                events.push(Progress { text, event });
                if let Some(finish) = sequence.finish(&rules.ends) {
                    ended.push((text, Some(finish)));
                    break;
                }
            }
        }
        for (text, finish) in ended {
            let Some(sequence) = self.remove(text) else {
                continue;
            };
            let event = match finish {
                Some(finish) => self.finished(&sequence, finish).map(Event::Finished),
                None => Err(self.not_a_number()),
            };
            let event = event.unwrap_or_else(Event::Failed);
            events.push(Progress { text, event });
        }
        Ok(events)
    }

    /// Computes what follows each text in progress.
    fn choose(&self) -> Result<Vec<Choice>> {
        let computed = || self.active.iter().filter(|sequence| sequence.is_computed());
        let rows: Vec<Row<'_>> = computed().flat_map(Sequence::rows).collect();
        let outputs = self.decoder.step(&rows, false)?;
        let _span = timeline::span(Activity::PostProcess);
        let mut choices = Vec::new();
        let mut first = 0;
        for sequence in computed() {
            let known = sequence.known();
            let last = first + known - 1;
            choices.push(if (first..=last).any(|row| outputs.has_nan(row)) {
                Choice::NotANumber
            } else if sequence.cached + known < sequence.tokens.len() {
                Choice::Known
            } else {
                following(sequence, &outputs, last)
            });
            first += known + sequence.draft.len();
        }
        Ok(choices)
    }

    /// Guesses tokens where the cache has room for them.
    fn guess(&mut self) -> Result<()> {
        let kept = self.kept();
        self.active.iter_mut().for_each(|sequence| sequence.draft.clear());
        let guessed = self.active.iter().enumerate();
        let guessed = guessed.filter(|(_, sequence)| sequence.is_computed() && sequence.draft_tokens() > 0);
        let (indices, wanted): (Vec<usize>, Vec<Wanted<'_>>) = guessed
            .map(|(index, sequence)| (index, Wanted::of(sequence)))
            .unzip();
        let drafts = match &mut self.draft_model {
            Some(model) if !wanted.is_empty() => model.guess_all(&wanted)?,
            Some(_) => return Ok(()),
            None => {
                let texts = indices.iter().map(|&index| &self.active[index]);
                texts
                    .map(|text| draft::lookup(&text.tokens, text.draft_tokens()))
                    .collect()
            }
        };
        for (index, draft) in indices.into_iter().zip(drafts) {
            let sequence = &mut self.active[index];
            let tokens = sequence.cached + 1 + draft.len();
            if !draft.is_empty() && self.pages.grow_beside(kept, &mut sequence.pages, tokens) {
                sequence.draft = draft;
            }
        }
        Ok(())
    }

    /// Returns the use of drafts since the generator was loaded.
    pub fn speculation(&self) -> Speculation {
        self.speculation
    }

    /// Measures the device's time of each phase of the following steps, for a [`Recording`](hipvit::timeline::Recording). A step then replays a captured graph only with
    /// [`GraphMode::On`](hipvit::GraphMode::On).
    pub fn measure_steps(&mut self, measured: bool) {
        self.decoder.timed = measured;
    }

    /// Returns the plan of the next step, and the time of each of its kernels and library calls. Empty on the CPU.
    ///
    /// # Errors
    ///
    /// The errors of a run. All texts stay in progress.
    pub fn time_calls(&mut self) -> Result<(Arc<Plan>, Vec<TimedCall>)> {
        self.reserve()?;
        let computed = self.active.iter().filter(|sequence| sequence.is_computed());
        let rows: Vec<Row<'_>> = computed.map(Sequence::row).collect();
        self.decoder.time_calls(&rows)
    }

    pub(crate) fn not_a_number(&self) -> Error {
        let dtype = self.session.dtype();
        let reason = format!("logits are NaN in {dtype}. Use f32, or check the weights");
        Error::device(self.session.device().to_string(), reason)
    }

    fn finished(&self, sequence: &Sequence, finish: Finish) -> Result<Generated> {
        let tokens = sequence.tokens[sequence.rules.first.tokens.len()..].to_vec();
        Ok(Generated {
            text: self.detokenizer.text(&tokens)?,
            finish,
            prompt_tokens: sequence.rules.first.prompt_tokens,
            tokens,
        })
    }

    /// Returns the index of a text in progress.
    pub(crate) fn sequence(&self, text: TextId) -> Option<usize> {
        // Ids are in ascending order.
        let found = self.active.binary_search_by_key(&text, |sequence| sequence.id);
        found.ok()
    }

    /// Removes a text from those in progress, and frees its part of the cache.
    fn remove(&mut self, text: TextId) -> Option<Sequence> {
        if let Some(model) = &mut self.draft_model {
            model.remove(text);
        }
        let index = self.sequence(text)?;
        let mut sequence = self.active.remove(index);
        self.pages.release(&mut sequence.pages);
        self.numbers.push(sequence.image);
        Some(sequence)
    }

    /// Ends a text before it is complete, and frees its part of the cache. Returns false if it is not in progress.
    pub fn cancel(&mut self, text: TextId) -> bool {
        let searching = self.searching.iter().position(|searched| searched.id == text);
        match searching.map(|index| self.searching.remove(index)) {
            Some(mut searched) => {
                searched.release(&mut self.pages);
                self.leave(&searched);
                true
            }
            None => self.remove(text).is_some(),
        }
    }

    /// Ends all texts before they are complete.
    pub fn cancel_all(&mut self) {
        self.active.clear();
        self.searching.clear();
        self.reset_cache();
        if let Some(model) = &mut self.draft_model {
            model.cancel_all();
        }
    }

    /// Reserves the page of each sequence's next token. If there are too few, the last sequences lose theirs, and compute their tokens again.
    fn reserve(&mut self) -> Result<()> {
        let kept = self.kept();
        let mut index = 0;
        while index < self.active.len() {
            let (before, rest) = self.active.split_at_mut(index + 1);
            let Some(sequence) = before.last_mut() else {
                break;
            };
            if self
                .pages
                .grow_beside(kept, &mut sequence.pages, sequence.tokens.len())
            {
                index += 1;
                continue;
            }
            let victim = rest.iter_mut().rev().find(|other| !other.pages.is_empty());
            let Some(victim) = victim else {
                // The sequence waits for those before it, and for searches.
                self.pages.release(&mut sequence.pages);
                sequence.cached = 0;
                if index == 0 && self.searching.is_empty() {
                    let reason = format!("has {} pages, too few for one text", self.pages.count());
                    return Err(Error::internal("cache", reason));
                }
                index += 1;
                continue;
            };
            self.pages.release(&mut victim.pages);
            victim.cached = 0;
        }
        Ok(())
    }
}
