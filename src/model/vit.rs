//! Describes the structure of a Vision Transformer, independent of the library that wrote its configuration.
//!
//! [`super::timm`] and [`super::hugging_face`] produce this description, and [`super::builder`] builds a graph from it.

use super::hierarchy::Hierarchy;
use super::invalid::Invalid;
use super::norm::Norm;
use super::packed_layout::Layout;
use super::positions::{Filter, Fitting, Grid, GridTable};
use super::relative::RelativePositions;
use super::rotary::Rotary;
use super::stage_sizes::{MAX_ELEMENTS, StageSizes};
use crate::ops::Activation;

/// Maximum side of an image in pixels. The number of patches cannot overflow.
pub(super) const LARGEST_SIDE: usize = 1 << 20;

/// Structure and sizes of one model. Channels are `dim` unless stated otherwise.
#[derive(Clone, Debug)]
pub(super) struct Vit {
    /// Height and width of the image, in pixels.
    pub(super) image: [usize; 2],
    /// Height and width of a patch, in pixels.
    pub(super) patch: [usize; 2],
    /// Filter that resamples weights of patches of another size. Without it, they must have the model's size.
    pub(super) patch_filter: Option<Filter>,
    pub(super) dim: usize,
    pub(super) depth: usize,
    /// Number of attention heads. 0 without attention.
    pub(super) heads: usize,
    /// Number of heads of keys and values in each block, if it is smaller than the number of query heads.
    pub(super) kv_heads: Option<Vec<usize>>,
    /// Number of channels between the two layers of the feed-forward network.
    pub(super) hidden: usize,
    pub(super) mlp: Mlp,
    /// Kind of every norm that has no field of its own.
    pub(super) norms: Norm,
    pub(super) blocks: Blocks,
    /// True if the patch projection has a bias.
    pub(super) patch_bias: bool,
    /// Norm of the projected patches, before positions are added.
    pub(super) patch_norm: Option<Norm>,
    pub(super) class_token: bool,
    pub(super) distillation_token: bool,
    /// Number of register tokens, which come after the class token.
    pub(super) registers: usize,
    pub(super) positions: Option<Positions>,
    pub(super) rotary: Option<Rotary>,
    /// Stages with different grids. Then `dim`, `heads` and `hidden` are those of the last stage, and `depth` that of all
    /// stages.
    pub(super) hierarchy: Option<Hierarchy>,
    /// Bias of the scores by relative position. It requires the class token and the patches to be the only tokens.
    pub(super) relative: Option<RelativePositions>,
    /// True if there is a norm between the embeddings and the first block.
    pub(super) pre_norm: bool,
    /// True for each of queries, keys and values that has a bias.
    pub(super) qkv_bias: [bool; 3],
    /// True if the output projection of attention has a bias.
    pub(super) projection_bias: bool,
    /// True if the feed-forward network has biases.
    pub(super) mlp_bias: bool,
    /// True for each of attention and feed-forward network that has LayerScale.
    pub(super) layer_scale: [bool; 2],
    /// True if there is a norm of all tokens after the last block.
    pub(super) norm: bool,
    pub(super) pooling: Pooling,
    /// True if there is a norm of the pooled vector.
    pub(super) pooled_norm: bool,
    /// Layers from the pooled vector to the image's embedding.
    pub(super) neck: Neck,
    /// Number of logits. 0 for a model without a classifier.
    pub(super) classes: usize,
}

/// Differences of the blocks from `x + attention(norm(x))`, then `x + mlp(norm(x))`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) form: BlockForm,
    /// True if attention is the difference of two attentions, from the halves of each head's queries and keys.
    /// <https://arxiv.org/abs/2410.05258>
    pub(super) differential: bool,
    /// True if each token attends only to itself and earlier tokens, as in texts.
    pub(super) causal: bool,
    /// True if there are norms of each head's queries and keys.
    pub(super) qk_norm: bool,
    /// True if there is a norm between attention and its output projection.
    pub(super) attention_norm: bool,
    /// True if there is a norm before the second layer of the feed-forward network.
    pub(super) mlp_norm: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BlockForm {
    #[default]
    PreNorm,
    /// `x + norm(attention(x))`, then `x + norm(mlp(x))`.
    PostNorm,
    /// Attention and feed-forward network in parallel, with their first layers fused.
    /// <https://arxiv.org/abs/2302.05442>
    Parallel,
    /// Two parallel attentions, then two parallel feed-forward networks. <https://arxiv.org/abs/2203.09795>
    Pairs,
    /// A feed-forward network over the tokens, with `hidden` channels between its layers, in place of attention.
    /// <https://arxiv.org/abs/2105.01601>
    Mixer { hidden: usize },
    /// A linear layer over the tokens in place of attention. <https://arxiv.org/abs/2105.03404>
    ResMlp,
    /// Only a feed-forward network. Half of its hidden channels, mixed over the tokens, gate the other half.
    /// <https://arxiv.org/abs/2105.08050>
    SpatialGating,
}

/// Form of the feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mlp {
    /// `fc2(activation(fc1(x)))`.
    Plain(Activation),
    /// `fc2(silu(gate) · value)`, where one layer, twice as wide, computes gate and value.
    SwiGluPacked,
    /// `fc2(silu(gate) · value)`, where one layer computes value and gate, in this order.
    SwiGluGateLast,
    /// `fc2(silu(gate) · value)`, with a layer each for gate and value.
    SwiGlu,
}

/// Position information that is added to the embedded patches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Positions {
    /// A learned table.
    Table {
        /// Number of tokens before the patches that have a row. Their rows precede those of the patches.
        prefix: usize,
        /// Method that fits the rows of the patches to the image.
        fitting: Fitting,
    },
    /// A learned table of a grid, without rows of other tokens.
    Grid(GridTable),
    /// [Sines and cosines](super::positions::sinusoidal) of the patch's column and row.
    Sinusoidal,
    /// A learned table of `side × side` positions, resampled to each image's own grid of patches (NaFlex).
    ///
    /// The image has the form that [`crate::patch_grid`] describes. The weights of a patch are in the order row,
    /// column, channel.
    PerImage { side: usize },
    /// A learned table that the host interpolates to the grid of each packed image.
    ///
    /// The weights of a patch are in the order row, column, channel.
    Packed(Layout),
}

/// Method that reduces the tokens to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The class token.
    Class,
    /// The class token and the distillation token, each with a classifier. Logits and embedding are the means of both.
    ClassAndDistillation,
    /// The mean of the tokens, without the first `skip`.
    Mean { skip: usize },
    /// The maximum of the tokens in each channel, without the first `skip`.
    Max { skip: usize },
    /// The class token, then the mean of the patch tokens: `2 · dim` channels.
    ClassAndMean,
    /// The average of mean and maximum of the tokens, without the first `skip`.
    MeanAndMax { skip: usize },
    /// One learned query that attends to the tokens, without the first `skip`, then a feed-forward network.
    Attention {
        skip: usize,
        heads: usize,
        hidden: usize,
        activation: Activation,
    },
    /// One learned query without a projection that attends to all tokens, then an output projection.
    Query {
        heads: usize,
        /// True if keys and values have biases.
        bias: bool,
    },
    /// Self-attention of all tokens without projections, then the class token, or the mean of all tokens if there is
    /// none.
    SelfAttention,
}

/// Layers between pooling and classifier.
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
    /// Returns the rows and columns of patches.
    pub(super) fn grid(&self) -> Grid {
        [0, 1].map(|axis| self.image[axis] / self.patch[axis])
    }

    /// Returns the rows and columns of tokens after the last block.
    pub(super) fn last_grid(&self) -> Grid {
        let hierarchy = self.hierarchy.as_ref();
        hierarchy
            .and_then(Hierarchy::last_grid)
            .unwrap_or_else(|| self.grid())
    }

    /// Returns a description of each stage of the hierarchy. Its blocks are those of a ViT of the stage's sizes.
    pub(super) fn stages(&self) -> Vec<Self> {
        let stages = self.hierarchy.iter().flat_map(Hierarchy::sizes);
        stages
            .map(|stage: StageSizes| Self {
                dim: stage.dim,
                depth: stage.depth,
                heads: stage.heads,
                hidden: stage.hidden,
                hierarchy: None,
                ..self.clone()
            })
            .collect()
    }

    /// Returns true if patches share pixels.
    pub(super) fn has_overlapping_patches(&self) -> bool {
        matches!(self.hierarchy, Some(Hierarchy::Hiera(_)))
    }

    /// Returns true if images may have any aspect ratio.
    pub(super) fn is_flexible(&self) -> bool {
        matches!(
            self.positions,
            Some(Positions::PerImage { .. } | Positions::Packed(_))
        )
    }

    /// Returns the layout of sequences, if images are packed.
    pub(super) fn packed(&self) -> Option<Layout> {
        match self.positions {
            Some(Positions::Packed(layout)) => Some(layout),
            _ => None,
        }
    }

    /// Returns the number of tokens before the patches.
    pub(super) fn prefix(&self) -> usize {
        usize::from(self.class_token) + usize::from(self.distillation_token) + self.registers
    }

    /// Estimates the floating-point operations of one image: GEMMs and attention.
    pub(super) fn flops(&self) -> u64 {
        let [rows, columns] = self.grid().map(|n| n as u128);
        let [height, width] = self.patch.map(|n| n as u128);
        let (dim, hidden) = (self.dim as u128, self.hidden as u128);
        let patches = rows * columns;
        let tokens = patches + self.prefix() as u128;
        let mlp = match self.mlp {
            Mlp::Plain(_) => 2 * hidden,
            Mlp::SwiGluPacked | Mlp::SwiGluGateLast | Mlp::SwiGlu => 3 * hidden,
        };
        if let Some(hierarchy) = &self.hierarchy {
            return u64::try_from(hierarchy.flops()).unwrap_or(u64::MAX);
        }
        // Per token and channel, Q, K, V and the output projection have dim × dim weights each. Scores and their
        // weighted sum take tokens × tokens.
        let mixing = match self.blocks.form {
            BlockForm::Mixer { hidden: of_tokens } => mlp / hidden.max(1) * of_tokens as u128,
            BlockForm::ResMlp | BlockForm::SpatialGating => tokens,
            _ => 4 * dim + 2 * tokens,
        };
        let blocks = match self.blocks.form {
            BlockForm::Pairs => 2 * self.depth,
            _ => self.depth,
        };
        let block = 2u128
            .saturating_mul(tokens)
            .saturating_mul(dim)
            .saturating_mul(mixing + mlp);
        let patch = (2 * patches)
            .saturating_mul(3 * height * width)
            .saturating_mul(dim);
        let flops = block.saturating_mul(blocks as u128).saturating_add(patch);
        u64::try_from(flops).unwrap_or(u64::MAX)
    }

    /// Checks that the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let [[h, w], [ph, pw]] = [self.image, self.patch];
        let too_large = || Invalid::from(format!("an image of {h}×{w} is too large"));
        if h.max(w) > LARGEST_SIDE {
            return Err(too_large());
        }
        if ph > h || pw > w {
            return Err(format!("a patch of {ph}×{pw} does not fit an image of {h}×{w}").into());
        }
        if self.heads > 0 && !self.dim.is_multiple_of(self.heads) {
            return Err(format!("{} channels do not divide among {} heads", self.dim, self.heads).into());
        }
        let [rows, columns] = self.grid();
        let elements = (rows * columns + self.prefix()).saturating_mul(self.dim);
        // A hierarchy has more channels where it has fewer tokens, and checks each stage.
        if self.hierarchy.is_none() && elements > MAX_ELEMENTS {
            return Err(format!("{rows}×{columns} patches of {} channels are too many", self.dim).into());
        }
        let scores = (rows * columns + self.prefix())
            .saturating_pow(2)
            .saturating_mul(self.heads);
        if self.relative.is_some() && scores > MAX_ELEMENTS {
            return Err(format!(
                "{rows}×{columns} patches are too many for a relative position bias of {} heads",
                self.heads
            )
            .into());
        }
        // Few patches, but large ones.
        if h.saturating_mul(w) > MAX_ELEMENTS {
            return Err(too_large());
        }
        if let Some(hierarchy) = &self.hierarchy {
            hierarchy.check()?;
        }
        if self.hidden == 0 {
            return Err("the feed-forward network has no channels".into());
        }
        for Norm { epsilon, .. } in std::iter::once(self.norms).chain(self.patch_norm) {
            if !(epsilon.is_finite() && epsilon >= 0.0) {
                return Err(format!("the norms' epsilon is {epsilon}").into());
            }
        }
        if let Pooling::Attention { heads, .. } | Pooling::Query { heads, .. } = self.pooling
            && !self.dim.is_multiple_of(heads)
        {
            return Err(format!(
                "{} channels do not divide among {heads} heads of the pooling",
                self.dim
            )
            .into());
        }
        if matches!(self.positions, Some(Positions::Sinusoidal)) && !self.dim.is_multiple_of(4) {
            return Err(format!(
                "sinusoidal positions need a multiple of 4 channels, not {}",
                self.dim
            )
            .into());
        }
        let head_dim = self.dim.checked_div(self.heads).unwrap_or(0);
        if self.rotary.is_some() && !head_dim.is_multiple_of(4) {
            return Err(format!(
                "rotary position embedding needs heads with a multiple of 4 channels, not {head_dim}"
            )
            .into());
        }
        if let Some(kv_heads) = &self.kv_heads
            && (kv_heads.len() != self.depth
                || kv_heads
                    .iter()
                    .any(|&kv| kv == 0 || !self.heads.is_multiple_of(kv)))
        {
            return Err(format!(
                "{kv_heads:?} heads of keys and values do not fit {} blocks of {} heads",
                self.depth, self.heads
            )
            .into());
        }
        if self.blocks.differential && !head_dim.is_multiple_of(2) {
            return Err(format!(
                "differential attention needs heads with an even number of channels, not {head_dim}"
            )
            .into());
        }
        if !self.class_token && matches!(self.pooling, Pooling::Class | Pooling::ClassAndMean) {
            return Err("there is no class token to pool".into());
        }
        Ok(())
    }
}
