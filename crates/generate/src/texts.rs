//! The schedule of texts in progress: they enter and leave between steps.

use hipvit::error::{Error, Result};
use hipvit::{RunInput, RunOptions};
use ndarray::ArrayView3;

use crate::decoder::Row;
use crate::generator::Generator;
use crate::sampling::{self, GenerateOptions};
use crate::text::{Event, Finish, Generated, Progress, Sequence, TextId, TextRules};

impl Generator {
    /// Returns how many texts can be started now.
    pub fn vacant(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number of texts in progress.
    pub fn running(&self) -> usize {
        self.active.len()
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
    /// - The errors of [`Session::run_with`](hipvit::Session::run_with).
    pub fn start<'a>(
        &mut self,
        images: impl Into<RunInput<'a>>,
        options: &[GenerateOptions],
    ) -> Result<Vec<TextId>> {
        self.check_vacant(options.len())?;
        let outputs = self.session.run_with(images, RunOptions::new())?;
        let tokens = outputs.tokens.as_ref();
        let tokens = tokens.ok_or_else(|| Error::internal("encoder", "returns no tokens"))?;
        self.start_encoded(tokens.view(), options)
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
        self.check_vacant(options.len())?;
        let rules = options.iter().map(|options| self.text_rules(options));
        let rules = rules.collect::<Result<Vec<_>>>()?;
        let numbers = self.encode(tokens, rules.len())?;
        let start = self.decoder.spec().rules.start;
        let mut ids = Vec::with_capacity(rules.len());
        for (rules, image) in rules.into_iter().zip(numbers) {
            let id = TextId(self.started);
            self.started += 1;
            ids.push(id);
            self.active.push(Sequence::new(id, rules, image, start));
        }
        Ok(ids)
    }

    fn check_vacant(&self, images: usize) -> Result<()> {
        if images <= self.vacant() {
            return Ok(());
        }
        let vacant = self.vacant();
        let reason =
            format!("are {images}, and {vacant} texts can be started now. Start the others after a step");
        Err(Error::argument("images", reason))
    }

    /// Writes the encoder's tokens of images to the cache. Returns the images' numbers, which are taken.
    pub(crate) fn encode(&mut self, tokens: ArrayView3<'_, f32>, images: usize) -> Result<Vec<usize>> {
        let rows = tokens.dim().0;
        let first = self.numbers.len().checked_sub(images);
        let (Some(first), true) = (first, rows == images) else {
            let reason = format!("are {images}, for {rows} images. Give options for each image");
            return Err(Error::argument("options", reason));
        };
        let numbers: Vec<usize> = self.numbers[first..].iter().rev().copied().collect();
        self.decoder.write_images(tokens, &numbers)?;
        self.numbers.truncate(first);
        Ok(numbers)
    }

    fn text_rules(&self, options: &GenerateOptions) -> Result<TextRules> {
        options.check()?;
        Ok(TextRules {
            length: self.length(options)?,
            sampling: options.sampling.clone(),
            index: options.first_index,
        })
    }

    /// Returns the maximum number of tokens of a sequence, with the first one.
    fn length(&self, options: &GenerateOptions) -> Result<usize> {
        let most = self.max_tokens();
        match options.max_tokens {
            None => Ok(self.default_tokens() + 1),
            Some(0) => Err(Error::argument("max tokens", "is 0; at least one is needed")),
            Some(tokens) if tokens <= most => Ok(tokens + 1),
            Some(tokens) => {
                let reason = format!("{tokens} are more than the {most} for which the model has positions");
                Err(Error::argument("max tokens", reason))
            }
        }
    }

    /// Computes a token of each text in progress. Texts that are complete leave.
    ///
    /// A text has no event if the cache was full in an earlier step: its tokens are computed again first.
    ///
    /// # Errors
    ///
    /// The errors of a run. All texts stay in progress.
    pub fn step(&mut self) -> Result<Vec<Progress>> {
        if self.active.is_empty() {
            return Ok(Vec::new());
        }
        self.reserve()?;
        let computed = || self.active.iter().filter(|sequence| sequence.is_computed());
        let rows: Vec<Row<'_>> = computed().map(Sequence::row).collect();
        let logits = self.decoder.step(&rows)?;
        let rules = &self.decoder.spec().rules;
        let (mut events, mut ended) = (Vec::new(), Vec::new());
        let computed = self.active.iter_mut().filter(|sequence| sequence.is_computed());
        for (sequence, logits) in computed.zip(logits.rows()) {
            let text = sequence.id;
            sequence.cached += 1;
            if logits.iter().any(|logit| logit.is_nan()) {
                ended.push((text, None));
                continue;
            }
            // A sequence that lost its pages has later tokens already.
            if sequence.cached < sequence.tokens.len() {
                continue;
            }
            let TextRules { sampling, index, .. } = &sequence.rules;
            let token = sampling::next(
                logits,
                &sequence.tokens,
                &rules.repetition,
                sampling.as_ref(),
                *index,
            );
            sequence.tokens.push(token);
            let event = Event::Token(token);
            events.push(Progress { text, event });
            if let Some(finish) = sequence.finish(&rules.ends) {
                ended.push((text, Some(finish)));
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

    fn not_a_number(&self) -> Error {
        let dtype = self.session.dtype();
        let reason = format!("logits are NaN in {dtype}. Use f32, or check the weights");
        Error::device(self.session.device().to_string(), reason)
    }

    fn finished(&self, sequence: &Sequence, finish: Finish) -> Result<Generated> {
        let tokens = sequence.tokens[1..].to_vec();
        Ok(Generated {
            text: self.detokenizer.text(&tokens)?,
            finish,
            tokens,
        })
    }

    /// Removes a text from those in progress, and frees its part of the cache.
    fn remove(&mut self, text: TextId) -> Option<Sequence> {
        // Ids are in ascending order.
        let index = self
            .active
            .binary_search_by_key(&text, |sequence| sequence.id)
            .ok()?;
        let mut sequence = self.active.remove(index);
        self.pages.release(&mut sequence.pages);
        self.numbers.push(sequence.image);
        Some(sequence)
    }

    /// Ends a text before it is complete, and frees its part of the cache. Returns false if it is not in progress.
    pub fn cancel(&mut self, text: TextId) -> bool {
        self.remove(text).is_some()
    }

    /// Ends all texts before they are complete.
    pub fn cancel_all(&mut self) {
        self.active.clear();
        self.reset_cache();
    }

    /// Reserves the page of each sequence's next token. If there are too few, the last sequences lose theirs, and compute their tokens again.
    fn reserve(&mut self) -> Result<()> {
        let mut index = 0;
        while index < self.active.len() {
            let (before, rest) = self.active.split_at_mut(index + 1);
            let Some(sequence) = before.last_mut() else {
                break;
            };
            if self.pages.grow(&mut sequence.pages, sequence.cached + 1) {
                index += 1;
                continue;
            }
            let victim = rest.iter_mut().rev().find(|other| !other.pages.is_empty());
            let Some(victim) = victim else {
                // The sequence waits for those before it.
                self.pages.release(&mut sequence.pages);
                sequence.cached = 0;
                if index == 0 {
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
