//! Reads images: the schedule of their sequences.

use std::collections::VecDeque;
use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::image::RgbImage;
use hipvit::model::{self, Checkpoint, Detokenizer};
use hipvit::{Session, SessionBuilder};
use ndarray::Array2;

use crate::decoder::{Decoder, Row};
use crate::graph::CacheSize;
use crate::pages::{PAGE, Pages};
use crate::sampling::{self, GenerateOptions};
use crate::spec::DecoderSpec;

/// Makes texts of images.
#[derive(Debug)]
pub struct Generator {
    session: Session,
    decoder: Decoder,
    tokenizer: Detokenizer,
    pages: Pages,
}

/// A text of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The text, without special tokens.
    pub text: String,
    /// The new tokens, with the one that ended the text.
    pub tokens: Vec<u32>,
    /// Why the text ended.
    pub finish: Finish,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    End,
    /// It reached the maximum number of tokens.
    Length,
}

/// An image in progress.
#[derive(Clone, Debug)]
struct Sequence {
    /// Index of the image in the call.
    index: usize,
    /// Number of the image in the cache.
    image: usize,
    pages: Vec<u32>,
    tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    cached: usize,
}

impl Sequence {
    /// Returns true if there is a page for the next token.
    fn is_computed(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Returns the next token to compute.
    fn row(&self) -> Row<'_> {
        Row {
            token: self.tokens[self.cached],
            position: self.cached,
            pages: &self.pages,
            image: self.image,
        }
    }
}

impl Generator {
    /// Loads the model at `path` with the options of `builder`. Batches of the encoder and of the decoder have at most
    /// [`batch`](SessionBuilder::batch) images.
    ///
    /// The cache has room for a batch of texts of `max_tokens` tokens, by default the maximum of the model's files. Longer texts are possible,
    /// but tokens are computed again when the cache is full.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a model without a decoder that is supported, and the errors of [`SessionBuilder::load`].
    pub fn load(path: impl AsRef<Path>, builder: &SessionBuilder, max_tokens: Option<usize>) -> Result<Self> {
        let path = path.as_ref();
        let directory = model::directory(path)?;
        let checkpoint = Checkpoint::open(Some(path))?;
        let spec = DecoderSpec::read(&directory, checkpoint.config())?;
        let tokenizer = Detokenizer::load(&directory)?;
        let session = builder.clone().tokens(true).load(path)?;
        if session.executors().len() > 1 {
            let reason = "are several. The decoder runs on one device: name one";
            return Err(Error::argument("devices", reason));
        }
        let (images, sequence) = (session.batch(), spec.context.div_ceil(PAGE));
        // The first token is cached and the last one is not. One text of the longest fits in any case.
        let usual = max_tokens.unwrap_or(spec.rules.max_length);
        let usual = usual.min(spec.context).div_ceil(PAGE);
        let cache = CacheSize {
            pages: images.saturating_mul(usual).max(sequence),
            sequence,
            images,
            tokens: session.info().tokens,
        };
        Ok(Self {
            decoder: Decoder::new(spec, &checkpoint, &session, cache)?,
            pages: Pages::new(cache.pages),
            session,
            tokenizer,
        })
    }

    /// Returns the session of the encoder.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the number of beams that the model's files ask for. Texts are decoded greedily, with one.
    pub fn beams(&self) -> usize {
        self.decoder.spec().rules.beams
    }

    /// Returns the bytes of the cache of keys and values on the device.
    ///
    /// # Errors
    ///
    /// The errors of a plan.
    pub fn cache_bytes(&self) -> Result<usize> {
        self.decoder.cache_bytes()
    }

    /// Makes the texts of images, in their order. Calls `each` with the index of an image and a new token of it, as soon as it is known.
    ///
    /// Each token is the most likely one, or a random one with [`Sampling`](crate::Sampling). Penalties of repetitions that the model's files have
    /// apply to both.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if more tokens are asked for than the model has positions, and the errors of [`Session::run`].
    pub fn generate(
        &mut self,
        images: &[RgbImage],
        options: &GenerateOptions,
        each: &mut dyn FnMut(usize, u32),
    ) -> Result<Vec<Generated>> {
        options.check()?;
        let length = self.length(options)?;
        let mut texts: Vec<Option<Generated>> = vec![None; images.len()];
        let mut waiting: VecDeque<usize> = (0..images.len()).collect();
        let mut numbers: Vec<usize> = (0..self.decoder.cache().images).rev().collect();
        let mut active: Vec<Sequence> = Vec::new();
        let mut run = || -> Result<()> {
            while !(waiting.is_empty() && active.is_empty()) {
                self.admit(images, &mut waiting, &mut numbers, &mut active)?;
                self.reserve(&mut active)?;
                self.step(&mut active, options, each)?;
                let is_finished = |sequence: &Sequence| self.finish(sequence, length).is_some();
                let (finished, rest) = std::mem::take(&mut active).into_iter().partition(is_finished);
                active = rest;
                let mut finished: Vec<Sequence> = finished;
                for sequence in &mut finished {
                    numbers.push(sequence.image);
                    self.pages.release(&mut sequence.pages);
                }
                for sequence in finished {
                    texts[sequence.index] = Some(self.text(&sequence, length)?);
                }
            }
            Ok(())
        };
        let result = run();
        // After an error, sequences are left.
        for sequence in &mut active {
            self.pages.release(&mut sequence.pages);
        }
        result?;
        let missing = || Error::internal("texts", "are not finished");
        texts.into_iter().map(|text| text.ok_or_else(missing)).collect()
    }

    /// Returns the logits of each token of given texts, `[tokens, vocabulary]`: row `i` is what the model says after the first token and the `i`
    /// tokens before. There is a text for each image.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are not as many texts as images, or for a token or a length that the model does not have.
    pub fn logits(&mut self, images: &[RgbImage], texts: &[&[u32]]) -> Result<Vec<Array2<f32>>> {
        self.check_texts(images.len(), texts)?;
        let rules = self.decoder.spec().rules.clone();
        let mut logits = Vec::with_capacity(texts.len());
        let most = self.decoder.cache().images;
        for (images, texts) in images.chunks(most).zip(texts.chunks(most)) {
            let mut waiting: VecDeque<usize> = (0..images.len()).collect();
            let mut numbers: Vec<usize> = (0..images.len()).rev().collect();
            let mut sequences = Vec::new();
            self.admit(images, &mut waiting, &mut numbers, &mut sequences)?;
            let result = self.follow(&mut sequences, texts, rules.start);
            for sequence in &mut sequences {
                self.pages.release(&mut sequence.pages);
            }
            logits.extend(result?);
        }
        Ok(logits)
    }

    fn check_texts(&self, images: usize, texts: &[&[u32]]) -> Result<()> {
        let spec = self.decoder.spec();
        let reason = if texts.len() != images {
            format!("are {}, but there are {images} images", texts.len())
        } else if let Some(text) = texts.iter().find(|text| text.len() > spec.context) {
            format!("have at most {} tokens, and one has {}", spec.context, text.len())
        } else if let Some(token) = texts
            .iter()
            .copied()
            .flatten()
            .find(|&&token| token as usize >= spec.vocabulary)
        {
            format!("have tokens below {}, and one has {token}", spec.vocabulary)
        } else {
            return Ok(());
        };
        Err(Error::argument("texts", reason))
    }

    /// Computes the tokens of texts, all at the same position in each step.
    fn follow(
        &mut self,
        sequences: &mut [Sequence],
        texts: &[&[u32]],
        start: u32,
    ) -> Result<Vec<Array2<f32>>> {
        for (sequence, text) in sequences.iter_mut().zip(texts) {
            sequence.tokens = [start].into_iter().chain(text.iter().copied()).collect();
            if !self.pages.grow(&mut sequence.pages, text.len()) {
                return Err(Error::internal("cache", "has too few pages for its images"));
            }
        }
        let vocabulary = self.decoder.spec().vocabulary;
        let mut logits: Vec<Vec<f32>> = vec![Vec::new(); texts.len()];
        loop {
            let is_left = |index: &usize| sequences[*index].cached < texts[*index].len();
            let left: Vec<usize> = (0..texts.len()).filter(is_left).collect();
            if left.is_empty() {
                break;
            }
            let rows: Vec<Row<'_>> = left.iter().map(|&index| sequences[index].row()).collect();
            let of_rows = self.decoder.step(&rows)?;
            for (&index, row) in left.iter().zip(of_rows.rows()) {
                logits[index].extend(row);
                sequences[index].cached += 1;
            }
        }
        let matrix =
            |values: Vec<f32>| Array2::from_shape_vec((values.len() / vocabulary, vocabulary), values);
        let matrices = logits
            .into_iter()
            .map(matrix)
            .collect::<std::result::Result<_, _>>();
        matrices.map_err(|error| Error::internal("logits", error))
    }

    /// Returns the maximum number of tokens of a sequence, with the first one.
    fn length(&self, options: &GenerateOptions) -> Result<usize> {
        let spec = self.decoder.spec();
        match options.max_tokens {
            None => Ok(spec.rules.max_length.min(spec.context).max(2)),
            Some(0) => Err(Error::argument("max tokens", "is 0; at least one is needed")),
            Some(tokens) if tokens < spec.context => Ok(tokens + 1),
            Some(tokens) => {
                let most = spec.context - 1;
                let reason = format!("{tokens} are more than the {most} for which the model has positions");
                Err(Error::argument("max tokens", reason))
            }
        }
    }

    /// Encodes waiting images while there is room in the cache.
    fn admit(
        &self,
        images: &[RgbImage],
        waiting: &mut VecDeque<usize>,
        numbers: &mut Vec<usize>,
        active: &mut Vec<Sequence>,
    ) -> Result<()> {
        let count = waiting.len().min(numbers.len());
        if count == 0 {
            return Ok(());
        }
        let new: Vec<usize> = waiting.drain(..count).collect();
        let of_images: Vec<usize> = numbers.drain(numbers.len() - count..).rev().collect();
        let outputs = self.session.run(new.iter().map(|&index| &images[index]))?;
        let tokens = outputs.tokens.as_ref();
        let tokens = tokens.ok_or_else(|| Error::internal("encoder", "returns no tokens"))?;
        self.decoder.write_images(tokens.view(), &of_images)?;
        let start = self.decoder.spec().rules.start;
        active.extend(new.into_iter().zip(of_images).map(|(index, image)| Sequence {
            index,
            image,
            pages: Vec::new(),
            tokens: vec![start],
            cached: 0,
        }));
        Ok(())
    }

    /// Reserves the page of each sequence's next token. If there are too few, the last sequences lose theirs, and compute their tokens again.
    fn reserve(&mut self, active: &mut [Sequence]) -> Result<()> {
        let mut index = 0;
        while index < active.len() {
            let (before, rest) = active.split_at_mut(index + 1);
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

    /// Computes a token of each sequence that has a page for it.
    fn step(
        &self,
        active: &mut [Sequence],
        options: &GenerateOptions,
        each: &mut dyn FnMut(usize, u32),
    ) -> Result<()> {
        let rows: Vec<Row<'_>> = active
            .iter()
            .filter(|sequence| sequence.is_computed())
            .map(Sequence::row)
            .collect();
        let logits = self.decoder.step(&rows)?;
        if logits.iter().any(|logit| logit.is_nan()) {
            let reason = format!(
                "are NaN in {}. Use f32, or check the weights",
                self.session.dtype()
            );
            return Err(Error::device(
                self.session.device().to_string(),
                format!("logits {reason}"),
            ));
        }
        let computed = active.iter_mut().filter(|sequence| sequence.is_computed());
        for (sequence, logits) in computed.zip(logits.rows()) {
            sequence.cached += 1;
            // A sequence that lost its pages has later tokens already.
            if sequence.cached == sequence.tokens.len() {
                let Sequence { tokens, index, .. } = &*sequence;
                let repetition = &self.decoder.spec().rules.repetition;
                let index = options.first_index + index;
                let token = sampling::next(logits, tokens, repetition, options.sampling.as_ref(), index);
                sequence.tokens.push(token);
                each(sequence.index, token);
            }
        }
        Ok(())
    }

    fn finish(&self, sequence: &Sequence, length: usize) -> Option<Finish> {
        let [_, .., last] = sequence.tokens.as_slice() else {
            return None;
        };
        if self.decoder.spec().rules.ends.contains(last) {
            Some(Finish::End)
        } else {
            (sequence.tokens.len() >= length).then_some(Finish::Length)
        }
    }

    fn text(&self, sequence: &Sequence, length: usize) -> Result<Generated> {
        let tokens = sequence.tokens[1..].to_vec();
        Ok(Generated {
            text: self.tokenizer.text(&tokens)?,
            finish: self.finish(sequence, length).unwrap_or(Finish::Length),
            tokens,
        })
    }
}
