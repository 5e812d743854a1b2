//! Sizes of a decoder and the rules of generation, from a directory of transformers.

mod families;
mod rules;

use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::model::Fields;
use hipvit::ops::Activation;
use serde_json::Value;

pub(crate) use self::rules::Rules;
use crate::names::Names;

/// Maximum number of positions. The largest published decoders have some thousands.
const MAX_CONTEXT: usize = 1 << 16;

/// Values of `model_type` of models with a decoder of texts.
pub(crate) const MODEL_TYPES: [&str; 4] = ["vision-encoder-decoder", "blip", "smolvlm", "idefics3"];

/// A decoder whose blocks have self-attention, cross-attention and a feed-forward network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DecoderSpec {
    pub(crate) names: &'static Names,
    pub(crate) vocabulary: usize,
    /// Number of channels.
    pub(crate) width: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Channels of the feed-forward network.
    pub(crate) hidden: usize,
    pub(crate) activation: Activation,
    /// Added to the variance in norms.
    pub(crate) epsilon: f32,
    /// True if norms come before the parts of a block, false if they come after them.
    pub(crate) is_pre_norm: bool,
    /// True if embeddings of tokens are multiplied by the square root of the width.
    pub(crate) scales_embedding: bool,
    pub(crate) has_embedding_norm: bool,
    pub(crate) positions: Positions,
    /// Parts of a decoder of type Llama, which reads images in its own sequence. `None` if it reads them by cross-attention.
    pub(crate) llama: Option<Llama>,
    /// Maximum number of tokens of a text.
    pub(crate) context: usize,
    /// True if the projection to logits is the embedding of tokens.
    pub(crate) ties_embedding: bool,
    /// Channels of the encoder's tokens.
    pub(crate) encoder_width: usize,
    /// True if they are projected to the decoder's width first.
    pub(crate) projects_encoder: bool,
    pub(crate) rules: Rules,
}

/// Parts of a decoder of type Llama.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Llama {
    pub(crate) head_dim: usize,
    /// Number of heads of keys and values.
    pub(crate) kv_heads: usize,
    /// Base of the frequencies of positions.
    pub(crate) theta: f32,
    /// The token whose place an image's token takes.
    pub(crate) image_token: u32,
    /// Rows and columns of the encoder's tokens of a tile.
    pub(crate) grid: [usize; 2],
    /// Rows and columns of the encoder's tokens that are one token of the decoder.
    pub(crate) scale: usize,
    /// True if the files have the chat template of SmolVLM.
    pub(crate) has_template: bool,
}

impl Llama {
    /// Returns the number of tokens of a tile.
    pub(crate) fn tile_tokens(&self) -> usize {
        self.grid[0] * self.grid[1] / (self.scale * self.scale)
    }

    /// Returns the angle by which a position rotates a pair of channels.
    pub(crate) fn frequency(&self, pair: usize) -> f32 {
        1.0 / self.theta.powf((2 * pair) as f32 / self.head_dim as f32)
    }
}

/// Positions of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// A learned table. Its first `unused` rows belong to no position.
    Learned {
        /// Number of unused rows.
        unused: usize,
    },
    /// Rotations of queries and keys.
    Rotary,
    /// Sines and cosines as in fairseq. The first position is row `padding + 1`, and tokens of padding have row `padding`.
    Sines {
        /// The token of padding.
        padding: usize,
    },
}

impl DecoderSpec {
    /// Reads the configuration of the model in `directory`, whose content is `config`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a model without a decoder, or one that is not supported.
    pub(crate) fn read(directory: &Path, config: &Value) -> Result<Self> {
        let file = directory.join("config.json");
        let whole = Fields::new(&file, config)?;
        let spec = match whole.text("model_type")?.unwrap_or_default() {
            "vision-encoder-decoder" => Self::encoder_decoder(directory, &whole)?,
            "blip" => Self::blip(&whole)?,
            "smolvlm" | "idefics3" => Self::smolvlm(directory, &whole)?,
            other => {
                let reason = format!(
                    "`model_type` is \"{other}\", which is not supported. Use a \"vision-encoder-decoder\", \"blip\", \"smolvlm\" or \"idefics3\" model"
                );
                return Err(Error::config(&file, reason));
            }
        };
        if let Some(reason) = spec.problem() {
            return Err(Error::config(&file, reason));
        }
        Ok(spec)
    }

    /// Returns the maximum tokens of a text that rules against repetitions read.
    pub(crate) fn history(&self) -> usize {
        self.rules.repetition.map_or(1, |_| self.context)
    }

    /// Returns the channels of a head.
    pub(crate) fn head_dim(&self) -> usize {
        self.width / self.heads
    }

    /// Returns the row of the table of positions for `token` at `position` of a text.
    pub(crate) fn position(&self, token: u32, position: usize) -> usize {
        match self.positions {
            Positions::Rotary => position,
            Positions::Learned { unused } => unused + position,
            Positions::Sines { padding } if token as usize == padding => padding,
            Positions::Sines { padding } => padding + 1 + position,
        }
    }

    /// Returns the number of rows of the table of positions.
    pub(crate) fn position_rows(&self) -> usize {
        self.context
            + match self.positions {
                Positions::Rotary => 0,
                Positions::Learned { unused } => unused,
                Positions::Sines { padding } => padding + 1,
            }
    }

    /// Returns the maximum number of tokens of a text whose prompt has `prompt` tokens. `new` is the maximum number of tokens after the prompt, or `None` for the files' limit.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a length that the model does not have.
    pub(crate) fn length(&self, new: Option<usize>, prompt: usize) -> Result<usize> {
        let most = self.context.saturating_sub(prompt);
        if most == 0 {
            let reason = format!(
                "has {prompt} tokens, and the model has positions for {}, with those of the text",
                self.context
            );
            return Err(Error::argument("prompt", reason));
        }
        match new {
            None => match self.rules.max_length.with_prompt(prompt).min(self.context) {
                length if length > prompt => Ok(length),
                // A file may limit texts to their first token, which is no text.
                _ if prompt == 1 => Ok(2),
                length => {
                    let reason = format!(
                        "has {prompt} tokens, and the model's files limit texts to {length} with it. Set the maximum number of tokens"
                    );
                    Err(Error::argument("prompt", reason))
                }
            },
            Some(0) => Err(Error::argument("max tokens", "is 0; at least one is needed")),
            Some(tokens) if tokens <= most => Ok(prompt + tokens),
            Some(tokens) => {
                let reason = format!("{tokens} are more than the {most} for which the model has positions");
                Err(Error::argument("max tokens", reason))
            }
        }
    }

    /// Returns what is out of range, with the reason.
    fn problem(&self) -> Option<String> {
        let Self { width, heads, .. } = *self;
        if let Some(Llama {
            head_dim, kv_heads, ..
        }) = self.llama
        {
            if !head_dim.is_multiple_of(2) {
                return Some(format!(
                    "a head has {head_dim} channels, which cannot be rotated in pairs"
                ));
            }
            if !heads.is_multiple_of(kv_heads) {
                return Some(format!(
                    "{heads} heads cannot be divided among {kv_heads} heads of keys and values"
                ));
            }
        } else if !width.is_multiple_of(heads) {
            return Some(format!("{width} channels cannot be divided among {heads} heads"));
        }
        if self.context > MAX_CONTEXT {
            let context = self.context;
            return Some(format!(
                "`max_position_embeddings` is {context}, more than the maximum of {MAX_CONTEXT}"
            ));
        }
        if self.context < 2 {
            return Some("`max_position_embeddings` is 1, and a text has at least two tokens".into());
        }
        let vocabulary = self.vocabulary;
        match self.positions {
            Positions::Sines { padding } if padding >= vocabulary => {
                return Some(format!(
                    "`pad_token_id` is {padding}, but the vocabulary has {vocabulary} tokens"
                ));
            }
            _ => {}
        }
        let is_unknown = |token: &u32| *token as usize >= vocabulary;
        if let Some(end) = self.rules.forced_end.filter(is_unknown) {
            return Some(format!(
                "`forced_eos_token_id` is {end}, but the vocabulary has {vocabulary} tokens"
            ));
        }
        let images = self.llama.as_ref().map(|llama| llama.image_token);
        if let Some(image) = images.filter(is_unknown) {
            return Some(format!(
                "`image_token_id` is {image}, but the vocabulary has {vocabulary} tokens"
            ));
        }
        let start = self.rules.start;
        is_unknown(&start)
            .then(|| format!("the first token is {start}, but the vocabulary has {vocabulary} tokens"))
    }
}

#[cfg(test)]
mod tests;
