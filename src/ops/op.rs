//! The typed ops of a graph: what each computes.
//!
//! Shapes: `B` batch, `N` tokens, `D` channels, `H`×`W` image, `h`×`w` patch. All tensors are row-major.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a node does with its operands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// `(pixels u8 [B,H,W,3]) → [B,3,H,W]`, see [`Normalize`].
    Normalize(Normalize),
    /// A convolution whose stride is its kernel: `(x [B,3,H,W], weight [D,3,h,w], bias [D]?) → [B,N,D]` with
    /// `N = ⌊H/h⌋·⌊W/w⌋`, patches in row-major order. Pixels beyond the last whole patch are ignored.
    PatchConv(PatchConv),
    /// Patches as rows of a matrix, ready for [`Op::Linear`], see [`PixelLayout`].
    PatchExtract(PatchExtract),
    /// `(prefix [1,P,D] …, x [B,N,D]) → [B,ΣP+N,D]`: the prefix tokens, the same for every image, before x's.
    Prepend,
    /// Token assembly in one step: `(x [B,N,D], prefix [1,P,D]?, position [1,N,D]?) → [B,P+N,D]`; the position table
    /// is added to x, the prefix is copied as it is.
    Tokens(Tokens),
    /// To the tokens of images of any aspect ratio a position table, resampled to each image's own grid of patches, bilinear and
    /// antialiased as in PyTorch: `(x [B,P,D], table [S,S,D], pixels u8 [B,H,W,3]) → [B,P,D]`, for the graph's input in the form
    /// that [`Preprocess::apply`](crate::image::Preprocess::apply) describes. Tokens beyond an image's patches get its first patch's position.
    /// <https://arxiv.org/abs/2502.14786>
    GridPositions,
    /// Which of these tokens are an image's own: `(pixels u8 [B,H,W,3]) → [B,P]`, 1 or 0, the key mask of [`Op::Attention`]. On a
    /// GPU its elements are bytes, whatever the plan's dtype.
    GridMask,
    /// `(x, y) → x + y`; y has x's shape, or 1 where x has the batch.
    Add,
    /// `(x [..,D], gamma [D]) → x · gamma` (LayerScale).
    Scale,
    /// `(x [..,D], weight [D], bias [D]) → x · weight + bias` (ResMLP's norm). <https://arxiv.org/abs/2105.03404>
    Affine,
    /// `(x) → factor · x`.
    MulScalar(f32),
    /// Over each `D` channels: `(x [..,G·D], weight [D], bias [D]) → (x − mean) / √(variance + epsilon) · weight + bias`,
    /// the variance being the biased one. `G` is 1, or the heads where each is normed. <https://arxiv.org/abs/1607.06450>
    LayerNorm {
        /// Added to the variance.
        epsilon: f32,
    },
    /// Over each `D` channels: `(x [..,G·D], weight [D]) → x / √(mean(x²) + epsilon) · weight`.
    /// <https://arxiv.org/abs/1910.07467>
    RmsNorm {
        /// Added to the mean square.
        epsilon: f32,
    },
    /// `(x [..,K], weight [N,K], bias [N]?, residual [..,N]?) → activation(x · weightᵀ + bias) + residual`, in 8 bits on
    /// request.
    Linear(Linear),
    /// Elementwise.
    Activation(Activation),
    /// `(x [..,2·D]) → silu(x[..,:D]) · x[..,D:]` (SwiGLU's gate). <https://arxiv.org/abs/2002.05202>
    SwiGlu,
    /// [`SwiGlu`](Self::SwiGlu), then [`LayerNorm`](Self::LayerNorm) (EVA-02):
    /// `(x [..,2·D], weight [D], bias [D]) → layer_norm(silu(x[..,:D]) · x[..,D:])`. <https://arxiv.org/abs/2303.11331>
    SwiGluNorm {
        /// Added to the variance.
        epsilon: f32,
        /// How many of the D channels, the last ones, only fill a row up: the norm is over the others, and they are 0, whatever x,
        /// weight and bias hold there.
        padding: usize,
    },
    /// Rotary position embedding of queries and keys, `(x [B,N,n·C], table [1,P,d] or [1,P,C]) → [B,N,n·C]`: pairs of channels
    /// are rotated in the last P tokens, in the first of x's n groups of `C = heads · d` channels. All else stays. For each
    /// of those tokens, and for each head or for all, the table has the cosines of the head's d/2 pairs, then the sines.
    /// <https://arxiv.org/abs/2104.09864>
    Rope(Rope),
    /// Multi-head scaled dot-product attention, `softmax(scale · Q·Kᵀ + bias) · V`. <https://arxiv.org/abs/1706.03762>
    Attention(Attention),
    /// `(x [B,M,N], gamma [M]?, y [B,N − crop,M + pad]?) → gamma · xᵀ` of each image, without the last `crop` rows and with `pad`
    /// columns of zeros, then `+ y` or `· y`. Between two of them a Linear mixes tokens. <https://arxiv.org/abs/2105.01601>
    Transpose(Transpose),
    /// Of the softmax of an [`Op::Attention`] with the same operands, `f32 [B,heads,Nq,3]` whatever the activations' dtype, for each query:
    /// `ln Σ e^s` over its scores `s`, the largest probability, and the entropy `−Σ p·ln p` in nats. Of a query that sees
    /// no key −∞, 0 and 0.
    AttentionStatistics(Attention),
    /// `[B,N,D] → [B,D]`.
    Pool(Pool),
    /// `(x [B,D1], y [B,D2]) → [B,D1+D2]`.
    ConcatChannels,
    /// `(x [..,D], bias [D]?, residual [..,D]?) → Σ x + bias + residual`: the sum is over the ranks of a tensor-parallel
    /// model, each of which has a graph of its own; bias and residual are the same for all and added once.
    AllReduce(AllReduce),
}

/// `pixel · scale[c] + shift[c]` for channel c: rescaling, mean and standard deviation in one affine map.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalize {
    /// `rescale / std` of each channel.
    pub scale: [f32; 3],
    /// `−mean / std` of each channel.
    pub shift: [f32; 3],
}

/// Attributes of [`Op::PatchConv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchConv {
    /// Height and width of a patch, in pixels.
    pub patch: [usize; 2],
    /// Whether the third operand, the bias, is there.
    pub bias: bool,
}

/// Attributes of [`Op::PatchExtract`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchExtract {
    /// Height and width of a patch, in pixels.
    pub patch: [usize; 2],
    /// The layout of the pixels, which also determines the order within a row of the result.
    pub layout: PixelLayout,
    /// Applied during extraction, unless folded into the weights.
    pub normalize: Option<Normalize>,
}

/// The order of an image's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PixelLayout {
    /// `u8 [B,H,W,3]`; a patch becomes `h·w·3` elements in the order row, column, channel.
    Hwc,
    /// `f32 [B,3,H,W]`; a patch becomes `3·h·w` elements in the order channel, row, column.
    Chw,
}

/// Attributes of [`Op::Tokens`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Whether the operand `prefix` is there.
    pub prefix: bool,
    /// Whether the operand `position` is there.
    pub position: bool,
}

/// Attributes of [`Op::Linear`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    /// Whether the operand `bias` is there.
    pub bias: bool,
    /// Applied after the bias.
    pub activation: Option<Activation>,
    /// Whether the operand `residual`, added last, is there.
    pub residual: bool,
    /// How each row of x is rounded before it is multiplied, if it is. So is the weight then: of 8 bits with a scale for each of its
    /// rows, E4M3 for [`Rounding::Float8`] and int8 for [`Rounding::Int8`]; for [`Rounding::Bf16`] in bf16.
    pub rounding: Option<Rounding>,
}

/// What [`Op::Linear`] rounds x to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rounding {
    /// Integers.
    Int8(Levels),
    /// Floating-point numbers, E4M3 in OCP's encoding times a scale: the nearest to `x · (1/scale)`, ties to even, at most ±448.
    /// See [`float8`](super::float8).
    Float8(Float8Scale),
    /// bf16, to nearest, ties to even; products are exact in f32, where they are summed. GPUs compute such a layer in the dtype of the
    /// activations instead, which in f32 and f16 is more exact.
    Bf16,
}

impl Rounding {
    /// The scale of x in FP8, if it is known before.
    pub fn fixed_float8(self) -> Option<f32> {
        match self {
            Self::Float8(Float8Scale::Fixed(scale)) => Some(scale),
            _ => None,
        }
    }

    /// Whether each row is rounded by itself: what its elements decide, or known numbers, lie beside it.
    pub fn is_of_rows(self) -> bool {
        match self {
            Self::Int8(_) | Self::Float8(Float8Scale::Row) => true,
            Self::Float8(Float8Scale::Fixed(_)) | Self::Bf16 => false,
        }
    }

    /// Whether it is to 8 bits.
    pub fn is_to_8_bits(self) -> bool {
        match self {
            Self::Int8(_) | Self::Float8(_) => true,
            Self::Bf16 => false,
        }
    }

    /// What lies beside each row that is rounded by itself, in bytes: the scale of FP8; of int8 the scale and the zero point, in f32.
    pub(crate) fn row_bytes(self) -> usize {
        match self {
            Self::Float8(Float8Scale::Fixed(_)) | Self::Bf16 => 0,
            Self::Float8(Float8Scale::Row) => size_of::<f32>(),
            Self::Int8(_) => 2 * size_of::<f32>(),
        }
    }
}

/// By which scale [`Rounding::Float8`] rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Float8Scale {
    /// Each row's own: its largest magnitude becomes 448.
    Row,
    /// One for all of x, known before: a normal positive number.
    Fixed(f32),
}

/// The 256 levels to which x is rounded: `x ≈ scale · (q − zero)` with q from 0 to 255; see
/// [`quantize_row`](super::int8::quantize_row).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Levels {
    /// Over each row's range.
    #[default]
    Range,
    /// Over ± each row's largest magnitude, the zero point in the middle.
    Magnitude,
    /// Known before; what is beyond them becomes the nearest.
    Fixed {
        /// The step, a normal positive number.
        scale: f32,
        /// The zero point.
        zero: u8,
    },
}

/// Attributes of [`Op::AllReduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllReduce {
    /// How many ranks' x are summed.
    pub ranks: usize,
    /// Whether the operand `bias` is there.
    pub bias: bool,
    /// Whether the operand `residual`, added last, is there.
    pub residual: bool,
}

/// Elementwise functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x · Φ(x)` with the error function. <https://arxiv.org/abs/1606.08415>
    GeluErf,
    /// GELU by its tanh approximation, `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`.
    GeluTanh,
    /// `x · σ(1.702·x)`, CLIP's approximation of GELU.
    QuickGelu,
    /// `x · σ(x)`.
    Silu,
    /// `max(x, 0)`.
    Relu,
    /// The hyperbolic tangent (the pooler of BERT-like heads, and pre-logits).
    Tanh,
}

/// Attributes of [`Op::Rope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rope {
    /// Heads of a group.
    pub heads: usize,
    /// Channels of a head, an even number.
    pub head_dim: usize,
    /// How many groups of channels are rotated: 2 of packed queries, keys and values.
    pub rotated: usize,
    /// Which channels are rotated together.
    pub pairs: RopePairs,
}

/// The pairs of a head's `d` channels that [`Op::Rope`] rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RopePairs {
    /// 0 and 1, 2 and 3, …
    Interleaved,
    /// 0 and d/2, 1 and d/2 + 1, …
    Halves,
}

/// Attributes of [`Op::Attention`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// The number of heads.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// What multiplies `Q·Kᵀ`, usually `1/√head_dim`.
    pub scale: f32,
    /// The layout of the operands.
    pub operands: AttentionOperands,
    /// The first key that is attended to, with its value: those before it are left out.
    pub first_key: usize,
    /// Whether the last operand is a key mask `[B,N]` of [`Op::GridMask`]: keys with 0 are left out, with their values. An
    /// image without keys gets zeros.
    pub key_mask: bool,
    /// Whether the last operand, but for the key mask, is `bias [heads,Nq,N]`, which is added to the scores of each image.
    pub bias: bool,
    /// Whether a query attends only to the keys up to its own position; of as many queries as keys, all of them.
    pub causal: bool,
}

/// How [`Op::Attention`] gets Q, K and V. With `C = heads · head_dim`, the result is `[B,Nq,C]`; or `[B,C]` if q comes
/// as `[B,C]`, which is one query per image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttentionOperands {
    /// `(q [B or 1,Nq,C], k [B,N,C], v [B,N,C])`.
    Separate,
    /// `(qkv [B,N,3·C])`: all queries of a token, then its keys, then its values.
    #[default]
    PackedQkv,
    /// `(q [B or 1,Nq,C], kv [B,N,2·C])`.
    PackedKv,
}

/// Attributes of [`Op::Transpose`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transpose {
    /// Whether the operand `gamma`, a factor of each of the result's channels, is there.
    pub scale: bool,
    /// What is done with the operand `y`, if it is there.
    pub combine: Option<Combine>,
    /// Zeros at the end of each row of what was transposed and scaled, before `y` comes in.
    pub pad: usize,
    /// Elements at the end of each row of x that are left out; fewer than there are.
    pub crop: usize,
}

/// What [`Op::Transpose`] does with what it has transposed and its operand `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Combine {
    /// A residual.
    Add,
    /// A gate (gMLP). <https://arxiv.org/abs/2105.08050>
    Multiply,
}

/// Which token or tokens represent the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pool {
    /// The token of this index.
    Token(usize),
    /// The mean of all tokens but the first `skip`.
    Mean {
        /// How many leading tokens to leave out.
        skip: usize,
    },
    /// Each channel's maximum over all tokens but the first `skip`.
    Max {
        /// How many leading tokens to leave out.
        skip: usize,
    },
}

impl Op {
    /// The op's name as `hipvit inspect` prints it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Normalize(_) => "normalize",
            Self::PatchConv(_) => "patch_conv",
            Self::PatchExtract(_) => "patch_extract",
            Self::Prepend => "prepend",
            Self::Tokens(_) => "tokens",
            Self::GridPositions => "grid_positions",
            Self::GridMask => "grid_mask",
            Self::Add => "add",
            Self::Scale => "scale",
            Self::Affine => "affine",
            Self::MulScalar(_) => "mul_scalar",
            Self::LayerNorm { .. } => "layer_norm",
            Self::RmsNorm { .. } => "rms_norm",
            Self::Linear(_) => "linear",
            Self::Activation(_) => "activation",
            Self::SwiGlu => "swiglu",
            Self::SwiGluNorm { .. } => "swiglu_norm",
            Self::Rope(_) => "rope",
            Self::Attention(_) => "attention",
            Self::Transpose(_) => "transpose",
            Self::AttentionStatistics(_) => "attention_statistics",
            Self::Pool(_) => "pool",
            Self::ConcatChannels => "concat_channels",
            Self::AllReduce(_) => "all_reduce",
        }
    }
}

impl Activation {
    /// The name that PyTorch users know.
    pub fn name(self) -> &'static str {
        match self {
            Self::GeluErf => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::QuickGelu => "quick_gelu",
            Self::Silu => "silu",
            Self::Relu => "relu",
            Self::Tanh => "tanh",
        }
    }
}

/// The op with what was fused into it, such as `linear+bias+gelu+residual`.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::PatchConv(PatchConv { patch: [h, w], .. }) => write!(f, " {h}×{w}"),
            Self::PatchExtract(PatchExtract {
                patch: [h, w],
                normalize,
                ..
            }) => {
                write!(
                    f,
                    " {h}×{w}{}",
                    if normalize.is_some() { " +normalize" } else { "" }
                )
            }
            Self::Tokens(Tokens { prefix, position }) => {
                f.write_str(if *prefix { "+prefix" } else { "" })?;
                f.write_str(if *position { "+position" } else { "" })
            }
            Self::MulScalar(factor) => write!(f, " {factor}"),
            Self::LayerNorm { epsilon } | Self::RmsNorm { epsilon } => write!(f, " ε={epsilon:e}"),
            Self::SwiGluNorm { epsilon, padding } => {
                write!(f, " ε={epsilon:e}")?;
                match padding {
                    0 => Ok(()),
                    _ => write!(f, " pad {padding}"),
                }
            }
            Self::Linear(Linear {
                bias,
                activation,
                residual,
                rounding,
            }) => {
                f.write_str(match rounding {
                    None => "",
                    Some(Rounding::Int8(Levels::Range)) => " int8",
                    Some(Rounding::Int8(Levels::Magnitude)) => " int8 symmetric",
                    Some(Rounding::Int8(Levels::Fixed { .. })) => " int8 static",
                    Some(Rounding::Float8(Float8Scale::Row)) => " fp8 dynamic",
                    Some(Rounding::Float8(Float8Scale::Fixed(_))) => " fp8",
                    Some(Rounding::Bf16) => " bf16",
                })?;
                f.write_str(if *bias { "+bias" } else { "" })?;
                activation.map_or(Ok(()), |a| write!(f, "+{}", a.name()))?;
                f.write_str(if *residual { "+residual" } else { "" })
            }
            Self::Activation(activation) => write!(f, " {}", activation.name()),
            Self::Rope(Rope {
                heads,
                head_dim,
                rotated,
                pairs,
            }) => {
                write!(f, " {rotated}×{heads}×{head_dim}")?;
                f.write_str(match pairs {
                    RopePairs::Interleaved => " interleaved",
                    RopePairs::Halves => " halves",
                })
            }
            Self::Attention(spec) | Self::AttentionStatistics(spec) => {
                let Attention {
                    heads,
                    head_dim,
                    operands,
                    first_key,
                    key_mask,
                    bias,
                    causal,
                    ..
                } = spec;
                write!(f, " {heads}×{head_dim}")?;
                if *first_key > 0 {
                    write!(f, " keys {first_key}..")?;
                }
                f.write_str(if *causal { " causal" } else { "" })?;
                f.write_str(match operands {
                    AttentionOperands::Separate => "",
                    AttentionOperands::PackedQkv => " packed-qkv",
                    AttentionOperands::PackedKv => " packed-kv",
                })?;
                f.write_str(if *bias { " +bias" } else { "" })?;
                f.write_str(if *key_mask { " +key-mask" } else { "" })
            }
            Self::AllReduce(AllReduce {
                ranks,
                bias,
                residual,
            }) => {
                write!(f, " {ranks} ranks")?;
                f.write_str(if *bias { " +bias" } else { "" })?;
                f.write_str(if *residual { " +residual" } else { "" })
            }
            Self::Transpose(Transpose {
                scale,
                combine,
                pad,
                crop,
            }) => {
                f.write_str(if *scale { "+scale" } else { "" })?;
                f.write_str(match combine {
                    None => "",
                    Some(Combine::Add) => "+residual",
                    Some(Combine::Multiply) => "+gate",
                })?;
                if *pad > 0 {
                    write!(f, " pad {pad}")?;
                }
                if *crop > 0 {
                    write!(f, " crop {crop}")?;
                }
                Ok(())
            }
            Self::Pool(Pool::Token(index)) => write!(f, " token {index}"),
            Self::Pool(Pool::Mean { skip }) => write!(f, " mean of {skip}.."),
            Self::Pool(Pool::Max { skip }) => write!(f, " max of {skip}.."),
            _ => Ok(()),
        }
    }
}
