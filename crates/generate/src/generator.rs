//! Loads models, and makes the texts of given images.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::image::{RgbImage, Tiling};
use hipvit::model::{self, Checkpoint, Detokenizer};
use hipvit::{Session, SessionBuilder};
use ndarray::Array2;
use serde_json::Value;

use crate::decoder::Decoder;
use crate::draft::Speculation;
use crate::graph::CacheSize;
use crate::pages::{PAGE, Pages};
use crate::prompt::{first_tokens, grid};
use crate::prompts::Prompts;
use crate::sampling::GenerateOptions;
use crate::searched::{Searched, beam_rules};
use crate::spec::{DecoderSpec, MODEL_TYPES};
use crate::step_inputs::Row;
use crate::text::{Event, Generated, Sequence, TextId, TextRules};

/// Maximum size of a configuration. Those with many labels have some megabytes.
const MAX_CONFIG_BYTES: u64 = 64 << 20;

/// Makes texts of images.
#[derive(Debug)]
pub struct Generator {
    pub(crate) session: Session,
    pub(crate) decoder: Decoder,
    pub(crate) detokenizer: Arc<Detokenizer>,
    /// Division of images, for a decoder that reads tiles.
    pub(crate) tiling: Option<Tiling>,
    pub(crate) pages: Pages,
    /// Numbers in the cache that no image has.
    pub(crate) numbers: Vec<usize>,
    /// Texts in progress in the order of their ids. The first ones have precedence if the cache is full.
    pub(crate) active: Vec<Sequence>,
    /// Texts in progress by beam search. Their pages are kept for them.
    pub(crate) searching: Vec<Searched>,
    /// Number of texts that were started.
    pub(crate) started: u64,
    pub(crate) speculation: Speculation,
    /// Guesses tokens.
    pub(crate) draft_model: Option<Box<Self>>,
}

/// The files of a model with a decoder.
struct Files {
    checkpoint: Checkpoint,
    spec: DecoderSpec,
    detokenizer: Detokenizer,
    tiling: Option<Tiling>,
}

impl Files {
    fn read(path: &Path) -> Result<Self> {
        let directory = model::directory(path)?;
        let checkpoint = Checkpoint::open(Some(path))?;
        let spec = DecoderSpec::read(&directory, checkpoint.config())?;
        let mut detokenizer = Detokenizer::load(&directory)?;
        if let Some(hidden) = &spec.rules.hidden {
            detokenizer = detokenizer.keeping_special(hidden.clone());
        }
        Ok(Self {
            tiling: spec.llama.as_ref().map(|_| model::tiling(path)).transpose()?,
            checkpoint,
            spec,
            detokenizer,
        })
    }
}

/// Returns true if the configuration of the model at `path` has a decoder of texts. [`Generator::load`] says whether it is supported.
/// Returns false for a model whose configuration cannot be read.
pub fn makes_texts(path: impl AsRef<Path>) -> bool {
    let config = || -> Option<Value> {
        let file = model::directory(path.as_ref()).ok()?.join("config.json");
        let bytes = hipvit_files::regular_file::read_within(&file, MAX_CONFIG_BYTES).ok()?;
        hipvit_files::json::parse(&bytes).ok()
    };
    config().is_some_and(|config| MODEL_TYPES.iter().any(|kind| config["model_type"] == **kind))
}

/// Returns the number of pages of a cache with room for `images` texts with these options.
fn pages_of(
    spec: &DecoderSpec,
    detokenizer: &Detokenizer,
    tiling: Option<Tiling>,
    options: &GenerateOptions,
    images: usize,
) -> Result<usize> {
    let grid = tiling.map_or([0, 0], |tiling| tiling.largest_grid());
    let prompt = first_tokens(spec, detokenizer, options.prompt.as_deref(), grid)?;
    let prompt = prompt.tokens.len();
    // The last token is not cached.
    let usual = match options.max_tokens {
        Some(tokens) => prompt.saturating_add(tokens) - 1,
        None => spec.rules.max_length.with_prompt(prompt),
    };
    let usual = usual.min(spec.context).div_ceil(PAGE);
    let beams = options.beams.unwrap_or(spec.rules.beams.beams);
    // One text of the longest fits in any case, and so do the beams of a usual one.
    let most = images.max(beams).saturating_mul(usual);
    Ok(most.max(spec.context.div_ceil(PAGE)))
}

impl Generator {
    /// Loads the model at `path` with the options of `builder`. Batches of the encoder and of the decoder have at most
    /// [`batch`](SessionBuilder::batch) images.
    ///
    /// The cache has room for a batch of texts with these options. Longer texts are possible, but tokens are computed again when the cache is full.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`] for a model without a decoder that is supported.
    /// - [`Error::Argument`] for a prompt that the model cannot take.
    /// - The errors of [`SessionBuilder::load`].
    pub fn load(path: impl AsRef<Path>, builder: &SessionBuilder, options: &GenerateOptions) -> Result<Self> {
        let path = path.as_ref();
        let files = Files::read(path)?;
        let session = builder.clone().tokens(true).load(path)?;
        Self::assemble(session, files, options)
    }

    /// Loads the decoder of the model at `path`, whose encoder is `session`. [`load`](Self::load) describes the options.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] if `session` was loaded without [`tokens`](SessionBuilder::tokens).
    /// - [`Error::Config`] for a model without a decoder that is supported.
    /// - [`Error::Argument`] for a prompt that the model cannot take.
    pub fn of_session(session: Session, path: impl AsRef<Path>, options: &GenerateOptions) -> Result<Self> {
        Self::checked(session, Files::read(path.as_ref())?, options)
    }

    fn checked(session: Session, files: Files, options: &GenerateOptions) -> Result<Self> {
        if session.no_outputs()?.tokens().is_none() {
            let reason = "are no output of the session, and the decoder reads them. Load the model with them";
            return Err(Error::argument("tokens", reason));
        }
        Self::assemble(session, files, options)
    }

    /// Loads the decoder of a checkpoint, whose encoder is `session`, and the tokenizer of `directory`. [`load`](Self::load) describes
    /// the options.
    ///
    /// # Errors
    ///
    /// The errors of [`of_session`](Self::of_session).
    pub fn of_checkpoint(
        session: Session,
        checkpoint: Checkpoint,
        directory: &Path,
        options: &GenerateOptions,
    ) -> Result<Self> {
        let files = Files {
            tiling: None,
            spec: DecoderSpec::read(directory, checkpoint.config())?,
            detokenizer: Detokenizer::load(directory)?,
            checkpoint,
        };
        Self::checked(session, files, options)
    }

    fn assemble(session: Session, files: Files, options: &GenerateOptions) -> Result<Self> {
        if session.executors().len() > 1 {
            let reason = "are several. The decoder runs on one device: name one";
            return Err(Error::argument("devices", reason));
        }
        let Files {
            checkpoint,
            spec,
            detokenizer,
            tiling,
        } = files;
        let (images, sequence) = (session.batch(), spec.context.div_ceil(PAGE));
        let cache = CacheSize {
            pages: pages_of(&spec, &detokenizer, tiling, options, images)?,
            sequence,
            images,
            tiles: tiling.map_or(1, |tiling| tiling.max_tiles()),
            tokens: session.info().tokens,
        };
        let mut generator = Self {
            decoder: Decoder::new(spec, &checkpoint, &session, cache)?,
            session,
            detokenizer: Arc::new(detokenizer),
            tiling,
            pages: Pages::new(0),
            numbers: Vec::new(),
            active: Vec::new(),
            searching: Vec::new(),
            started: 0,
            speculation: Speculation::default(),
            draft_model: None,
        };
        generator.reset_cache();
        Ok(generator)
    }

    /// Frees the whole cache.
    pub(crate) fn reset_cache(&mut self) {
        let cache = self.decoder.cache();
        self.pages = Pages::new(cache.pages);
        self.numbers = (0..cache.images).rev().collect();
    }

    /// Returns the session of the encoder.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the conversion of tokens to text, for a [`TextStream`](crate::TextStream).
    pub fn detokenizer(&self) -> Arc<Detokenizer> {
        self.detokenizer.clone()
    }

    /// Returns what converts messages to prompts, and checks options, while texts are computed.
    pub fn prompts(&self) -> Prompts {
        Prompts {
            spec: Arc::new(self.decoder.spec().clone()),
            detokenizer: self.detokenizer.clone(),
            tiling: self.tiling,
            pages: self.pages.count(),
        }
    }

    /// Returns the rule that divides images into tiles, if the decoder reads tiles: [`start_tiles`](Self::start_tiles) takes them, and [`start`](Self::start) divides images. [`start_encoded`](Self::start_encoded) then fails.
    pub fn tiling(&self) -> Option<Tiling> {
        self.tiling
    }

    /// Returns the number of beams that the model's files ask for.
    pub fn beams(&self) -> usize {
        self.decoder.spec().rules.beams.beams
    }

    /// Returns true if the cache has room for a batch of texts with these options.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a prompt that the model cannot take.
    pub fn has_room(&self, options: &GenerateOptions) -> Result<bool> {
        let cache = self.decoder.cache();
        let spec = self.decoder.spec();
        let needed = pages_of(spec, &self.detokenizer, self.tiling, options, cache.images)?;
        Ok(needed <= cache.pages)
    }

    /// Returns the maximum number of new tokens of a text without a prompt whose options have none, which the model's files say.
    pub fn default_tokens(&self) -> usize {
        let spec = self.decoder.spec();
        spec.rules.max_length.with_prompt(1).min(spec.context).max(2) - 1
    }

    /// Returns the maximum number of new tokens for which the model has positions, if there is no prompt.
    pub fn max_tokens(&self) -> usize {
        self.decoder.spec().context - 1
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
    /// Each token is the most likely one, a random one with [`Sampling`](crate::Sampling), or with several [beams](GenerateOptions::beams) one of the text that is the most likely as a
    /// whole; its tokens are known when it is complete. Penalties of repetitions that the model's files have
    /// apply to both. Texts in progress are cancelled.
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
        self.cancel_all();
        options.check()?;
        let result = match beam_rules(self.decoder.spec(), options)? {
            Some(rules) => self.search_all(images, options, &rules, each),
            None => self.generate_all(images, options, each),
        };
        // After an error, texts are left.
        self.cancel_all();
        result
    }

    fn generate_all(
        &mut self,
        images: &[RgbImage],
        options: &GenerateOptions,
        each: &mut dyn FnMut(usize, u32),
    ) -> Result<Vec<Generated>> {
        let mut texts: Vec<Option<Generated>> = vec![None; images.len()];
        let mut indices: HashMap<TextId, usize> = HashMap::new();
        let mut next = 0;
        while next < images.len() || self.running() > 0 {
            let end = images.len().min(next + self.vacant());
            if next < end {
                let of_image = |index| GenerateOptions {
                    first_index: options.first_index + index,
                    ..options.clone()
                };
                let options: Vec<GenerateOptions> = (next..end).map(of_image).collect();
                let ids = self.start(&images[next..end], &options)?;
                indices.extend(ids.into_iter().zip(next..end));
                next = end;
            }
            for progress in self.step()? {
                let index = indices.get(&progress.text).copied();
                let index = index.ok_or_else(|| Error::internal("text", "is of no image"))?;
                match progress.event {
                    Event::Token(token) => each(index, token),
                    Event::Finished(text) => texts[index] = Some(text),
                    Event::Failed(error) => return Err(error),
                }
            }
        }
        let missing = || Error::internal("texts", "are not finished");
        texts.into_iter().map(|text| text.ok_or_else(missing)).collect()
    }

    /// Returns the logits of each token of given texts, `[tokens, vocabulary]`: row `i` is what the model says after the first token or the prompt, and the `i`
    /// tokens before. There is a text for each image. Texts in progress are cancelled.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are not as many texts as images, or for a token or a length that the model does not have.
    pub fn logits(
        &mut self,
        images: &[RgbImage],
        prompt: Option<&str>,
        texts: &[&[u32]],
    ) -> Result<Vec<Array2<f32>>> {
        self.check_texts(images.len(), texts)?;
        let mut logits = Vec::with_capacity(texts.len());
        let most = self.decoder.cache().images;
        for (images, texts) in images.chunks(most).zip(texts.chunks(most)) {
            self.cancel_all();
            let tiles = self.tiles(&images.into())?;
            let mut firsts = Vec::with_capacity(images.len());
            for (index, text) in texts.iter().enumerate() {
                let grid = grid(tiles.as_deref(), index);
                let spec = self.decoder.spec();
                let first = first_tokens(spec, &self.detokenizer, prompt, grid)?;
                // The last token is not computed.
                let most = (spec.context + 1).saturating_sub(first.tokens.len());
                if text.len() > most {
                    let reason = format!("have at most {most} tokens, and one has {}", text.len());
                    return Err(Error::argument("texts", reason));
                }
                firsts.push(first);
            }
            let numbers = self.encode_images(images.into(), tiles)?;
            let sequence = |(image, first)| Sequence::new(TextId::default(), TextRules::given(first), image);
            let mut sequences: Vec<Sequence> = numbers.into_iter().zip(firsts).map(sequence).collect();
            let result = self.follow(&mut sequences, texts);
            self.cancel_all();
            logits.extend(result?);
        }
        Ok(logits)
    }

    fn check_texts(&self, images: usize, texts: &[&[u32]]) -> Result<()> {
        let spec = self.decoder.spec();
        let reason = if texts.len() != images {
            format!("are {}, but there are {images} images", texts.len())
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
    fn follow(&mut self, sequences: &mut [Sequence], texts: &[&[u32]]) -> Result<Vec<Array2<f32>>> {
        for (sequence, text) in sequences.iter_mut().zip(texts) {
            sequence.tokens.extend_from_slice(text);
            if !self.pages.grow(&mut sequence.pages, sequence.tokens.len() - 1) {
                let reason =
                    "has too few pages for the texts. Use a larger batch, or load the model for longer texts";
                return Err(Error::argument("cache", reason));
            }
        }
        let vocabulary = self.decoder.spec().vocabulary;
        let mut logits: Vec<Vec<f32>> = vec![Vec::new(); texts.len()];
        loop {
            let is_left = |index: &usize| {
                let sequence = &sequences[*index];
                !texts[*index].is_empty() && sequence.cached + 1 < sequence.tokens.len()
            };
            let left: Vec<usize> = (0..texts.len()).filter(is_left).collect();
            if left.is_empty() {
                break;
            }
            let rows: Vec<Row<'_>> = left.iter().map(|&index| sequences[index].row()).collect();
            let of_rows = self.decoder.step(&rows, true)?.into_logits()?;
            for (&index, row) in left.iter().zip(of_rows.rows()) {
                let sequence = &mut sequences[index];
                sequence.cached += 1;
                if sequence.cached >= sequence.rules.first.tokens.len() {
                    logits[index].extend(row);
                }
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
}
