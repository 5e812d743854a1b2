//! Text tower of a dual encoder (CLIP or SigLIP): its sizes, tensors and graph, and the conversion of texts to its
//! input.
//!
//! The token embedding stays on the host, mapped from its file. Only the rows of a text's tokens are read. In SigLIP 2
//! it has 197 million parameters, more than the rest of the tower. A text uses a few thousand of them.

#[cfg(feature = "text")]
mod charsmap;
#[cfg(feature = "text")]
mod detokenizer;
#[cfg(feature = "text")]
mod guard;
#[cfg(feature = "text")]
mod limits;
#[cfg(feature = "text")]
mod open_clip;
#[cfg(feature = "text")]
mod python;
#[cfg(feature = "text")]
mod sentencepiece;
#[cfg(feature = "text")]
mod siglip;
pub(super) mod spec;
#[cfg(feature = "text")]
mod tokenizer;
#[cfg(feature = "text")]
mod tokens;
#[cfg(feature = "text")]
mod transformers;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::builder;
use super::source::Source;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::outputs::Scores;
use crate::tensor::Tensor;
use spec::{TextPooling, TextSpec};

#[cfg(feature = "text")]
pub use detokenizer::Detokenizer;
#[cfg(feature = "text")]
pub use tokenizer::Tokenizer;
#[cfg(feature = "text")]
pub use tokens::Tokens;

/// Facts about a model's text tower.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TextInfo {
    /// Maximum number of tokens of a text.
    pub context: usize,
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Number of channels.
    pub dim: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Number of channels of the embeddings of texts and images.
    pub width: usize,
    /// Number of parameters.
    pub parameters: u64,
}

impl fmt::Display for TextInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "text tower: context {}, vocabulary {}, depth {}, {} channels, {} heads, {} parameters; images and texts share {} \
             channels",
            self.context, self.vocabulary, self.depth, self.dim, self.heads, self.parameters, self.width
        )
    }
}

/// A loaded text tower.
#[derive(Clone)]
pub struct TextTower {
    /// Graph from embedded tokens to embeddings, see [`build_text`](builder::build_text).
    pub(crate) graph: Graph,
    /// Token embedding, `[vocabulary, D]`.
    tokens: Tensor,
    /// Position embedding, `[context, D]`.
    positions: Tensor,
    /// Natural logarithm of the factor of similarities between images and texts, and the bias that is added to them.
    logit_scale: f32,
    logit_bias: f32,
    spec: Arc<TextSpec>,
    files: Option<Arc<Source<'static>>>,
}

impl TextTower {
    /// Takes all tensors of the tower from `weights`. [`Weights::finish`] reports tensors that are left.
    pub(super) fn load(source: &Source<'_>, spec: TextSpec, weights: &mut Weights) -> Result<Self> {
        spec.check()
            .map_err(|reason| Error::config(source.directory(), reason))?;
        let dim = spec.trunk.dim;
        let graph = builder::build_text(&format!("{} (text)", source.name()), &spec, weights)?;
        let tokens = weights.take(&spec.token_embedding, &[spec.vocabulary, dim])?;
        let positions = weights.take(&spec.position_embedding, &[spec.context, dim])?;
        // transformers' SigLIP stores vectors of one element, the other classes scalars.
        let is_vector = spec.scores == Scores::Sigmoid && !source.is_open_clip();
        let mut scalar = |name: &str| -> Result<f32> {
            let shape = match weights.shape(name) {
                Some(&[1]) => vec![1],
                None if is_vector => vec![1],
                _ => vec![],
            };
            let value = weights.take(name, &shape)?;
            let value = value.to_f32();
            Ok(value.first().copied().unwrap_or_default())
        };
        let logit_scale = scalar("logit_scale")?;
        let logit_bias = match spec.scores {
            Scores::Sigmoid => scalar("logit_bias")?,
            Scores::Softmax => 0.0,
        };
        Ok(Self {
            graph,
            tokens,
            positions,
            logit_scale,
            logit_bias,
            spec: Arc::new(spec),
            files: source.directory_files().map(Arc::new),
        })
    }

    pub(super) fn info(&self, parameters: u64) -> TextInfo {
        let TextSpec {
            context,
            vocabulary,
            width,
            ref trunk,
            ..
        } = *self.spec;
        TextInfo {
            context,
            vocabulary,
            depth: trunk.depth,
            dim: trunk.dim,
            heads: trunk.heads,
            width,
            parameters,
        }
    }

    /// Returns the largest number of tokens of a text.
    pub fn context(&self) -> usize {
        self.spec.context
    }

    /// Returns the number of channels of an embedding.
    pub(super) fn width(&self) -> usize {
        self.spec.width
    }

    /// Returns the names and elements of the embedding of tokens `[vocabulary, D]` and of the positions `[context, D]`.
    pub(super) fn tables(&self) -> [(&str, &Tensor); 2] {
        [
            (&self.spec.token_embedding, &self.tokens),
            (&self.spec.position_embedding, &self.positions),
        ]
    }

    /// Returns true if the token that represents a text depends on the text.
    pub fn pools_by_text(&self) -> bool {
        self.spec.pooling != TextPooling::Last
    }

    /// Returns the function that converts similarities to probabilities.
    pub fn scores(&self) -> Scores {
        self.spec.scores
    }

    /// Returns the factor of the cosine similarity of an image and a text, and the bias added afterwards.
    pub fn scale_and_bias(&self) -> [f64; 2] {
        [f64::from(self.logit_scale).exp(), f64::from(self.logit_bias)]
    }

    /// Reads the tokenizer.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] for a file that is missing or invalid. Returns [`Error::Argument`] if the model was
    /// loaded from bytes.
    #[cfg(feature = "text")]
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match &self.files {
            Some(files) => Tokenizer::load(files, &self.spec),
            None => Err(Error::argument(
                "texts",
                "need a tokenizer, but models loaded from bytes have none. Load the model from its directory",
            )),
        }
    }

    /// Returns the number of tokens that the graph must process for texts of up to `longest` tokens.
    ///
    /// With a causal mask, tokens after a text's last token do not change the result.
    pub fn needed(&self, longest: usize) -> usize {
        match self.spec.pooling {
            TextPooling::Last => self.spec.context,
            _ if !self.spec.trunk.blocks.causal => self.spec.context,
            TextPooling::Largest | TextPooling::First(_) => longest.clamp(1, self.spec.context),
        }
    }

    /// Returns the index of the token that represents the text.
    pub(crate) fn pooled(&self, ids: &[u32]) -> usize {
        let found = match self.spec.pooling {
            TextPooling::Last => ids.len().checked_sub(1),
            TextPooling::First(end) => ids.iter().position(|&id| id == end),
            TextPooling::Largest => {
                let largest = ids.iter().max();
                ids.iter().position(|id| Some(id) == largest)
            }
        };
        found.unwrap_or(0)
    }

    /// Appends the embedded tokens of a text, with their positions added, to `values` as `[tokens, D]`. Rows after the
    /// text are 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] for a token that is not in the tower's vocabulary, or [`Error::Argument`] if the model
    /// was loaded from bytes.
    /// Checks that the model knows the ids of a text.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] or [`Error::Argument`] if the tokenizer belongs to another model.
    pub fn check_ids(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().find(|&&id| id as usize >= self.spec.vocabulary) {
            Some(&id) => Err(self.unknown(id)),
            None => Ok(()),
        }
    }

    fn unknown(&self, id: u32) -> Error {
        let reason = format!(
            "the tokenizer gives token {id}, but the model knows {}: the tokenizer belongs to another model",
            self.spec.vocabulary
        );
        match &self.files {
            Some(files) => Error::config(files.directory(), reason),
            None => Error::argument("texts", reason),
        }
    }

    pub(crate) fn embed(&self, ids: &[u32], tokens: usize, values: &mut Vec<f32>) -> Result<()> {
        let end = values.len() + tokens * self.spec.trunk.dim;
        for (place, &id) in ids.iter().take(tokens).enumerate() {
            let row = |table: &Tensor, row: usize| table.rows(row..row + 1);
            let (Some(token), Some(position)) = (row(&self.tokens, id as usize), row(&self.positions, place))
            else {
                return Err(self.unknown(id));
            };
            let (token, position) = (token.to_f32(), position.to_f32());
            values.extend(token.iter().zip(position.iter()).map(|(a, b)| a + b));
        }
        values.resize(end, 0.0);
        Ok(())
    }
}

impl fmt::Debug for TextTower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextTower")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}
