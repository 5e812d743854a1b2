//! Drafts by a smaller model (Leviathan et al., 2023, *Fast Inference from Transformers via Speculative Decoding*,
//! <https://arxiv.org/abs/2211.17192>).
//!
//! The smaller model is a [`Generator`] of its own, whose texts have the ids of those that they are drafts of.

use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::{RunInput, Session};

use crate::generator::Generator;
use crate::prompt::{first_tokens, grid};
use crate::sampling::GenerateOptions;
use crate::step_inputs::Row;
use crate::text::{Sequence, TextId, TextRules};

/// A text whose next tokens are wanted.
pub(crate) struct Wanted<'a> {
    pub(crate) text: TextId,
    /// Tokens of the text after its first ones.
    pub(crate) tokens: &'a [u32],
    /// Maximum number of guessed tokens.
    pub(crate) most: usize,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(sequence: &'a Sequence) -> Self {
        Self {
            text: sequence.id,
            tokens: &sequence.tokens[sequence.rules.first.tokens.len()..],
            most: sequence.draft_tokens(),
        }
    }
}

/// The guessed tokens of a text.
struct Draft {
    text: TextId,
    tokens: Vec<u32>,
    /// No more tokens can be guessed.
    ended: bool,
    most: usize,
}

impl Generator {
    /// Loads the model at `path` on the same device. From now on it guesses the tokens of texts with a [`draft`](GenerateOptions::draft), instead of
    /// those being looked up in the text. Texts in progress are cancelled.
    ///
    /// Both models read the same image. The draft model should be several times as fast, since it computes its tokens one by one. It chooses the
    /// most likely tokens. [`start_encoded`](Self::start_encoded) and [`start_tiles`](Self::start_tiles) have no drafts by it.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] if the two models do not have the same tokens.
    /// - The errors of [`load`](Self::load).
    pub fn load_draft_model(&mut self, path: impl AsRef<Path>, options: &GenerateOptions) -> Result<()> {
        let session = &self.session;
        let mut builder = Session::builder()
            .device(session.device())
            .dtype(session.dtype())
            .threads(session.threads())
            .batch(session.batch());
        if let Some(gpu) = session.executor().gpu() {
            builder = builder.gpu(gpu.clone());
        }
        let draft = Self::load(path.as_ref(), &builder, options)?;
        let expected = self.decoder.spec().vocabulary;
        let vocabulary = draft.decoder.spec().vocabulary;
        let other = self.detokenizer.first_difference(&draft.detokenizer, expected);
        let reason = if vocabulary != expected {
            format!("has {vocabulary} tokens, expected the {expected} of the model")
        } else if let Some(token) = other {
            format!("has another token {token} than the model: the tokenizers differ")
        } else {
            self.cancel_all();
            self.draft_model = Some(Box::new(draft));
            return Ok(());
        };
        Err(Error::argument("draft model", reason))
    }

    /// Drops the [draft model](Self::load_draft_model), if there is one. Texts in progress are cancelled.
    pub fn remove_draft_model(&mut self) {
        self.cancel_all();
        self.draft_model = None;
    }

    /// Starts the drafts of texts, of which those with [`GenerateOptions::draft`] are guessed.
    pub(crate) fn start_drafts(
        &mut self,
        images: RunInput<'_>,
        options: &[GenerateOptions],
        texts: &[TextId],
    ) -> Result<()> {
        let wants = |options: &GenerateOptions| options.draft > 0 && options.sampling.is_none();
        let Some(model) = self.draft_model.as_mut().filter(|_| options.iter().any(wants)) else {
            return Ok(());
        };
        let tiles = model.tiles(&images)?;
        let mut firsts = Vec::with_capacity(options.len());
        for (index, options) in options.iter().enumerate() {
            let (spec, grid) = (model.decoder.spec(), grid(tiles.as_deref(), index));
            let prompt = options.prompt.as_deref();
            firsts.push(first_tokens(spec, &model.detokenizer, prompt, grid)?);
        }
        let numbers = model.encode_images(images, tiles)?;
        for ((&text, first), image) in texts.iter().zip(firsts).zip(numbers) {
            model
                .active
                .push(Sequence::new(text, TextRules::given(first), image));
        }
        Ok(())
    }

    /// Guesses the next tokens of texts, which this model has [started](Self::start_drafts). A text that it does not have, or for which its cache is full,
    /// gets none.
    pub(crate) fn guess_all(&mut self, wanted: &[Wanted<'_>]) -> Result<Vec<Vec<u32>>> {
        let mut drafts = Vec::with_capacity(wanted.len());
        for &Wanted { text, tokens, most } in wanted {
            let index = self.sequence(text);
            if let Some(index) = index {
                self.active[index].follow(tokens);
            }
            drafts.push(Draft {
                text,
                tokens: Vec::new(),
                ended: index.is_none(),
                most,
            });
        }
        while self.extend(&mut drafts)? {}
        Ok(drafts.into_iter().map(|draft| draft.tokens).collect())
    }

    /// Computes a step of the drafts that are not complete. Returns false if all are.
    fn extend(&mut self, drafts: &mut [Draft]) -> Result<bool> {
        let spec = self.decoder.spec();
        let (context, ends) = (spec.context, spec.rules.ends.clone());
        let mut computed = Vec::new();
        for (draft, text) in drafts.iter_mut().enumerate() {
            text.ended |= text.tokens.len() >= text.most;
            let Some(index) = self.sequence(text.text).filter(|_| !text.ended) else {
                continue;
            };
            let sequence = &mut self.active[index];
            let tokens = sequence.cached + sequence.known();
            if tokens <= context && self.pages.grow(&mut sequence.pages, tokens) {
                computed.push((draft, index));
            } else {
                text.ended = true;
            }
        }
        if computed.is_empty() {
            return Ok(false);
        }
        let sequences = computed.iter().map(|&(_, index)| &self.active[index]);
        let rows: Vec<Row<'_>> = sequences.flat_map(Sequence::rows).collect();
        let outputs = self.decoder.step(&rows, false)?;
        let mut end = 0;
        for (draft, index) in computed {
            let (draft, sequence) = (&mut drafts[draft], &mut self.active[index]);
            let known = sequence.known();
            end += known;
            sequence.cached += known;
            if sequence.cached < sequence.tokens.len() {
                continue; // the prompt is not complete
            }
            if outputs.has_nan(end - 1) {
                draft.ended = true;
                continue;
            }
            let token = outputs.token(end - 1);
            draft.tokens.push(token);
            draft.ended |= ends.contains(&token);
            sequence.tokens.push(token);
        }
        Ok(true)
    }
}

impl Sequence {
    /// Takes over the tokens of the text that this is a draft of. What is cached of equal tokens stays.
    fn follow(&mut self, tokens: &[u32]) {
        let first = self.rules.first.tokens.len();
        let pairs = self.tokens[first..].iter().zip(tokens);
        let equal = pairs.take_while(|(own, token)| own == token).count();
        self.tokens.truncate(first);
        self.tokens.extend_from_slice(tokens);
        // The last token is computed, whose logits are wanted.
        self.cached = self.cached.min(first + equal).min(self.tokens.len() - 1);
    }
}
