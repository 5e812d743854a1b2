//! The text tower of a dual encoder, CLIP's or SigLIP's: its sizes, tensors and graph, and how texts become its input.
//!
//! The token embedding stays on the host, where it is mapped from its file and only the rows of a text's tokens are read: of
//! SigLIP 2 it has 197 million parameters, more than all else in the tower, and a few thousand of them count for a text.

#[cfg(feature = "text")]
mod charsmap;
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
#[cfg(feature = "text")]
mod tokenizer;
#[cfg(feature = "text")]
mod transformers;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::builder;
use super::names::{Names, Projection};
use super::source::Source;
use super::vit::{Blocks, Mlp, Neck, Norm, NormKind, Pooling, Vit};
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::ops::Activation;
use crate::outputs::Scores;
use crate::tensor::Tensor;

#[cfg(feature = "text")]
pub use tokenizer::Tokenizer;
#[cfg(feature = "text")]
pub use tokenizer::Tokens;

/// Maximum of a text tower's context, in tokens, and of its vocabulary: keeps a wrong configuration from requesting terabytes.
const LARGEST_CONTEXT: usize = 1 << 13;

/// The description of a text tower, independent of the library that wrote its configuration.
#[derive(Clone, Debug)]
pub(super) struct TextSpec {
    /// The blocks and the norm after them; of its image, patch and pooling nothing is used.
    pub(super) trunk: Vit,
    pub(super) names: &'static Names,
    /// Before the trunk's tensors' names.
    pub(super) prefix: &'static str,
    /// The token embedding and the positions: full names.
    pub(super) token_embedding: String,
    pub(super) position_embedding: String,
    /// Tokens of a text, at most.
    pub(super) context: usize,
    /// Different tokens.
    pub(super) vocabulary: usize,
    pub(super) pooling: TextPooling,
    pub(super) projection: Projection,
    pub(super) projection_bias: bool,
    /// Channels of the embedding.
    pub(super) width: usize,
    pub(super) scores: Scores,
    /// How texts become tokens, where the tokenizer's files leave it open.
    pub(super) tokenizer: TokenizerKind,
}

/// The token that stands for the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextPooling {
    /// That of the largest id, the first of several: the end token in CLIP's vocabulary.
    Largest,
    /// The first of this id, or the text's first token.
    First(u32),
    /// The context's last, which may be padding.
    Last,
}

/// The families' tokenizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenizerKind {
    /// transformers' for CLIP: a text has the tokens that it has.
    Clip,
    /// transformers' for SigLIP: a text is filled up to the context.
    Siglip,
    /// open_clip's: `text_cfg` chooses.
    OpenClip,
}

/// The sizes of a text trunk.
pub(super) struct TextTrunk {
    pub(super) context: usize,
    pub(super) dim: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    pub(super) hidden: usize,
    pub(super) activation: Activation,
    pub(super) epsilon: f64,
    pub(super) causal: bool,
    pub(super) layer_scale: bool,
}

impl TextTrunk {
    pub(super) fn vit(&self) -> Vit {
        Vit {
            image: [self.context, 1],
            patch: [1, 1],
            patch_filter: None,
            dim: self.dim,
            depth: self.depth,
            heads: self.heads,
            kv_heads: None,
            hidden: self.hidden,
            mlp: Mlp::Plain(self.activation),
            norms: Norm {
                kind: NormKind::Layer,
                epsilon: self.epsilon,
            },
            blocks: Blocks {
                causal: self.causal,
                ..Blocks::default()
            },
            patch_bias: false,
            patch_norm: None,
            class_token: false,
            distillation_token: false,
            registers: 0,
            positions: None,
            rotary: None,
            relative: None,
            pre_norm: false,
            qkv_bias: [true; 3],
            projection_bias: true,
            mlp_bias: true,
            layer_scale: [self.layer_scale; 2],
            norm: true,
            pooling: Pooling::Mean { skip: 0 },
            pooled_norm: false,
            neck: Neck::None,
            classes: 0,
        }
    }
}

impl TextSpec {
    /// Checks that the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.context > LARGEST_CONTEXT {
            return Err(format!(
                "a text's context of {} tokens is more than {LARGEST_CONTEXT}",
                self.context
            ));
        }
        let checked = self.trunk.check();
        checked.map_err(|reason| format!("of the text tower: {reason}"))
    }
}

/// Facts about a model's text tower.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TextInfo {
    /// Tokens of a text, at most.
    pub context: usize,
    /// Different tokens.
    pub vocabulary: usize,
    /// The number of blocks.
    pub depth: usize,
    /// Channels.
    pub dim: usize,
    /// Attention heads.
    pub heads: usize,
    /// Channels of a text's embedding, and of an image's.
    pub width: usize,
    /// The number of parameters.
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
    /// From embedded tokens to embeddings, see [`build_text`](builder::build_text).
    pub(crate) graph: Graph,
    /// `[vocabulary, D]`.
    tokens: Tensor,
    /// `[context, D]`.
    positions: Tensor,
    /// `ln` of the factor of similarities between images and texts, and what is added to them.
    logit_scale: f32,
    logit_bias: f32,
    spec: Arc<TextSpec>,
    files: Option<Arc<Source<'static>>>,
}

impl TextTower {
    /// Takes the tower's tensors; all of them, as [`Weights::finish`] sees to.
    pub(super) fn load(source: &Source<'_>, spec: TextSpec, weights: &mut Weights) -> Result<Self> {
        spec.check()
            .map_err(|reason| Error::config(source.directory(), reason))?;
        let dim = spec.trunk.dim;
        let graph = builder::build_text(&format!("{} (text)", source.name()), &spec, weights)?;
        let tokens = weights.take(&spec.token_embedding, &[spec.vocabulary, dim])?;
        let positions = weights.take(&spec.position_embedding, &[spec.context, dim])?;
        let mut scalar = |name: &str| -> Result<f32> {
            let shape = match weights.shape(name) {
                Some(&[1]) => vec![1],
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

    /// How similarities become probabilities.
    pub(crate) fn scores(&self) -> Scores {
        self.spec.scores
    }

    /// The factor of the cosine similarity of an image and a text, and what is added then.
    pub(crate) fn scale_and_bias(&self) -> [f64; 2] {
        [f64::from(self.logit_scale).exp(), f64::from(self.logit_bias)]
    }

    /// Reads the tokenizer.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a file that is missing or unusable.
    #[cfg(feature = "text")]
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match &self.files {
            Some(files) => Tokenizer::load(files, &self.spec),
            None => Err(Error::argument(
                "texts",
                "need a tokenizer, which a model that was loaded from bytes has not: load it from its directory",
            )),
        }
    }

    /// How many tokens the graph needs to take for texts of up to `longest` tokens: with a causal mask, what comes after a text's
    /// last token does not change it.
    pub(crate) fn needed(&self, longest: usize) -> usize {
        match self.spec.pooling {
            TextPooling::Last => self.spec.context,
            _ if !self.spec.trunk.blocks.causal => self.spec.context,
            TextPooling::Largest | TextPooling::First(_) => longest.clamp(1, self.spec.context),
        }
    }

    /// Which of the tokens stands for the text, where the graph leaves that open.
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

    /// Appends the embedded tokens of a text with their positions added to `values`, `[tokens, D]`; what is after the text is 0.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a token that the tower does not know.
    pub(crate) fn embed(&self, ids: &[u32], tokens: usize, values: &mut Vec<f32>) -> Result<()> {
        let end = values.len() + tokens * self.spec.trunk.dim;
        for (place, &id) in ids.iter().take(tokens).enumerate() {
            let row = |table: &Tensor, row: usize| table.rows(row..row + 1);
            let (Some(token), Some(position)) = (row(&self.tokens, id as usize), row(&self.positions, place))
            else {
                let reason = format!(
                    "the tokenizer gives token {id}, but the model knows {}: its tokenizer is another model's",
                    self.spec.vocabulary
                );
                return Err(Error::argument("texts", reason));
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
