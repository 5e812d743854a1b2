//! Description of a text tower.

use crate::model::invalid::Invalid;
use crate::model::names::{Names, Projection};
use crate::model::norm::{Norm, NormKind};
use crate::model::vit::{Blocks, Mlp, Neck, Pooling, Vit};
use crate::ops::Activation;
use crate::outputs::Scores;

/// Maximum context of a text tower, in tokens. It keeps a wrong configuration from requesting terabytes.
const LARGEST_CONTEXT: usize = 1 << 13;

/// Description of a text tower, independent of the library that wrote its configuration.
#[derive(Clone, Debug)]
pub(in crate::model) struct TextSpec {
    /// Blocks and final norm. The fields for image, patch and pooling are not used.
    pub(in crate::model) trunk: Vit,
    pub(in crate::model) names: &'static Names,
    /// Prefix of the trunk's tensor names.
    pub(in crate::model) prefix: &'static str,
    /// Full names of the token embedding and the position embedding.
    pub(in crate::model) token_embedding: String,
    pub(in crate::model) position_embedding: String,
    /// Maximum number of tokens of a text.
    pub(in crate::model) context: usize,
    /// Number of different tokens.
    pub(in crate::model) vocabulary: usize,
    pub(in crate::model) pooling: TextPooling,
    pub(in crate::model) projection: Projection,
    pub(in crate::model) projection_bias: bool,
    /// Number of channels of the embedding.
    pub(in crate::model) width: usize,
    pub(in crate::model) scores: Scores,
    /// Tokenizer of the family, for what the tokenizer's files leave open.
    pub(in crate::model) tokenizer: TokenizerKind,
}

/// Choice of the token that represents the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum TextPooling {
    /// First token with the largest id, which is the end token in CLIP's vocabulary.
    Largest,
    /// First token with this id, or the text's first token.
    First(u32),
    /// Last token of the context, which may be padding.
    Last,
}

/// Tokenizers of the model families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum TokenizerKind {
    /// transformers' tokenizer for CLIP, which does not pad a text.
    Clip,
    /// transformers' tokenizer for SigLIP, which pads a text to the context.
    Siglip,
    /// open_clip's tokenizer, which `text_cfg` selects.
    OpenClip,
}

/// Sizes of a text trunk.
pub(in crate::model) struct TextTrunk {
    pub(in crate::model) context: usize,
    pub(in crate::model) dim: usize,
    pub(in crate::model) depth: usize,
    pub(in crate::model) heads: usize,
    pub(in crate::model) hidden: usize,
    pub(in crate::model) activation: Activation,
    pub(in crate::model) epsilon: f64,
    pub(in crate::model) causal: bool,
    pub(in crate::model) layer_scale: bool,
}

impl TextTrunk {
    pub(in crate::model) fn vit(&self) -> Vit {
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
            hierarchy: None,
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
    pub(in crate::model) fn check(&self) -> Result<(), Invalid> {
        if self.context > LARGEST_CONTEXT {
            return Err(format!(
                "a text's context of {} tokens is more than {LARGEST_CONTEXT}",
                self.context
            )
            .into());
        }
        let checked = self.trunk.check();
        checked.map_err(|reason| format!("text tower: {reason}").into())
    }
}
