//! The structure of a Vision Transformer, independent of the library that wrote its configuration: [`super::timm`] and
//! [`super::hugging_face`] produce this description, [`super::builder`] builds a graph from it.

use super::positions::{Fitting, Grid};
use crate::ops::Activation;

/// Maximum number of elements in the tokens of an image; keeps a wrong configuration from requesting terabytes.
const MAX_ELEMENTS: usize = 1 << 28;

/// Maximum side of an image in pixels, so that the number of patches cannot overflow.
pub(super) const LARGEST_SIDE: usize = 1 << 20;

/// The structure of one model, sizes included. Channels are `dim` unless said otherwise.
#[derive(Clone, Debug)]
pub(super) struct Vit {
    /// Height and width of the image, in pixels.
    pub(super) image: [usize; 2],
    /// Height and width of a patch, in pixels.
    pub(super) patch: [usize; 2],
    pub(super) dim: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    /// Channels between the two layers of the feed-forward network.
    pub(super) hidden: usize,
    pub(super) mlp: Mlp,
    /// Added to the variance by every layer norm.
    pub(super) epsilon: f64,
    /// Whether the patch projection has a bias.
    pub(super) patch_bias: bool,
    pub(super) class_token: bool,
    pub(super) distillation_token: bool,
    /// The number of register tokens, which come after the class token.
    pub(super) registers: usize,
    pub(super) positions: Option<Positions>,
    /// A norm between the embeddings and the first block.
    pub(super) pre_norm: bool,
    pub(super) qkv_bias: bool,
    /// Whether the attention's output projection and the feed-forward network have biases.
    pub(super) block_bias: bool,
    pub(super) layer_scale: bool,
    /// A norm of all tokens after the last block.
    pub(super) norm: bool,
    pub(super) pooling: Pooling,
    /// A norm of the pooled vector.
    pub(super) pooled_norm: bool,
    /// From the pooled vector to the image's embedding.
    pub(super) neck: Neck,
    /// Logits; 0 for a model without a classifier.
    pub(super) classes: usize,
}

/// The feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mlp {
    /// `fc2(activation(fc1(x)))`.
    Plain(Activation),
    /// `fc2(silu(gate) · value)`, where one layer, twice as wide, gives gate and value.
    SwiGlu,
}

/// The position table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    /// How many of the tokens before the patches have a row, ahead of the patches' rows.
    pub(super) prefix: usize,
    /// How the rows of the patches are fitted to the image.
    pub(super) fitting: Fitting,
}

/// From tokens to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The class token.
    Class,
    /// The class token and the distillation token, each with a classifier; logits and embedding are their means.
    ClassAndDistillation,
    /// The mean of the tokens but the first `skip`.
    Mean { skip: usize },
    /// The maximum of the tokens but the first `skip`, channel by channel.
    Max { skip: usize },
    /// The class token, then the mean of the patch tokens: `2 · dim` channels.
    ClassAndMean,
    /// One learned query attends to all tokens, then passes through a feed-forward network.
    Attention { hidden: usize, activation: Activation },
}

/// Between pooling and classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Neck {
    None,
    /// A dense layer of `width` outputs with a bias, and an activation (BERT's pooler).
    Pooler {
        width: usize,
        activation: Activation,
    },
    /// A projection to `width` channels without a bias, into the space that images and texts share.
    Projection {
        width: usize,
    },
}

impl Vit {
    /// Rows and columns of patches.
    pub(super) fn grid(&self) -> Grid {
        [0, 1].map(|axis| self.image[axis] / self.patch[axis])
    }

    /// Tokens before the patches.
    pub(super) fn prefix(&self) -> usize {
        usize::from(self.class_token) + usize::from(self.distillation_token) + self.registers
    }

    /// Floating-point operations of one image, about: the GEMMs and attention.
    pub(super) fn flops(&self) -> u64 {
        let [rows, columns] = self.grid().map(|n| n as u128);
        let [height, width] = self.patch.map(|n| n as u128);
        let (dim, hidden) = (self.dim as u128, self.hidden as u128);
        let patches = rows * columns;
        let tokens = patches + self.prefix() as u128;
        let mlp = match self.mlp {
            Mlp::Plain(_) => 2 * hidden,
            Mlp::SwiGlu => 3 * hidden,
        };
        // Q, K, V and the output projection have dim × dim weights each; scores and their weighted sum take tokens × tokens.
        let block = 2u128
            .saturating_mul(tokens)
            .saturating_mul(dim)
            .saturating_mul(4 * dim + mlp + 2 * tokens);
        let patch = (2 * patches)
            .saturating_mul(3 * height * width)
            .saturating_mul(dim);
        let flops = block.saturating_mul(self.depth as u128).saturating_add(patch);
        u64::try_from(flops).unwrap_or(u64::MAX)
    }

    /// Checks that the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), String> {
        let [[h, w], [ph, pw]] = [self.image, self.patch];
        let too_large = || format!("an image of {h}×{w} is too large");
        if h.max(w) > LARGEST_SIDE {
            return Err(too_large());
        }
        if ph > h || pw > w {
            return Err(format!("a patch of {ph}×{pw} does not fit an image of {h}×{w}"));
        }
        if !self.dim.is_multiple_of(self.heads) {
            return Err(format!(
                "{} channels do not divide among {} heads",
                self.dim, self.heads
            ));
        }
        let [rows, columns] = self.grid();
        if (rows * columns + self.prefix()).saturating_mul(self.dim) > MAX_ELEMENTS {
            return Err(format!(
                "{rows}×{columns} patches of {} channels are too many",
                self.dim
            ));
        }
        // Few patches, but large ones.
        if h.saturating_mul(w) > MAX_ELEMENTS {
            return Err(too_large());
        }
        if self.hidden == 0 {
            return Err("the feed-forward network has no channels".into());
        }
        if !(self.epsilon.is_finite() && self.epsilon >= 0.0) {
            return Err(format!("the layer norms' epsilon is {}", self.epsilon));
        }
        if !self.class_token && matches!(self.pooling, Pooling::Class | Pooling::ClassAndMean) {
            return Err("there is no class token to pool".into());
        }
        Ok(())
    }
}
