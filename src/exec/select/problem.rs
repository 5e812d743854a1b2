//! Problems that kernels are selected for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::options::SelectOptions;
use crate::hip::{ConvolutionShape, DType, Epilogue, Gemm, Matrix, MultiHeadAttention};
use crate::kernels::gemv::MAX_ROWS;
use crate::ops::Activation;

/// A problem that several candidates can compute. Has everything that their speed depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Problem {
    /// A linear layer.
    Linear(LinearShape),
    /// The patch embedding, from pixels to tokens.
    PatchEmbedding(PatchEmbeddingShape),
    /// Self-attention.
    Attention(AttentionShape),
    /// Attention with a pattern.
    PatternAttention(PatternAttentionShape),
    /// A convolution of images, channels last.
    Conv(ConvShape),
}

impl Problem {
    /// Returns the floating-point operations of the GEMMs.
    pub fn flops(&self) -> f64 {
        match self {
            Self::Linear(shape) => shape.flops(),
            Self::PatchEmbedding(shape) => shape.linear().flops(),
            Self::Attention(shape) => {
                let tokens = shape.tokens as f64;
                4.0 * (shape.images * shape.heads * shape.head_dim) as f64 * tokens * tokens
            }
            // Hidden scores count too: which ones are depends on the captured tensors.
            Self::PatternAttention(shape) => {
                let scores = shape.queries as f64 * shape.keys as f64;
                4.0 * (shape.images * shape.heads * shape.head_dim) as f64 * scores
            }
            Self::Conv(shape) => shape.flops(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linear(shape) => shape.fmt(f),
            Self::PatchEmbedding(shape) => shape.fmt(f),
            Self::Attention(shape) => shape.fmt(f),
            Self::PatternAttention(shape) => shape.fmt(f),
            Self::Conv(shape) => shape.fmt(f),
        }
    }
}

impl From<LinearShape> for Problem {
    fn from(shape: LinearShape) -> Self {
        Self::Linear(shape)
    }
}

impl From<PatchEmbeddingShape> for Problem {
    fn from(shape: PatchEmbeddingShape) -> Self {
        Self::PatchEmbedding(shape)
    }
}

impl From<AttentionShape> for Problem {
    fn from(shape: AttentionShape) -> Self {
        Self::Attention(shape)
    }
}

impl From<PatternAttentionShape> for Problem {
    fn from(shape: PatternAttentionShape) -> Self {
        Self::PatternAttention(shape)
    }
}

impl From<ConvShape> for Problem {
    fn from(shape: ConvShape) -> Self {
        Self::Conv(shape)
    }
}

/// Operands of a GEMM that are transposed, in the order of BLAS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GemmLayout {
    /// `a [m,k] · b [n,k]ᵀ`: a linear layer.
    #[default]
    Nt,
    /// `a [m,k] · b [k,n]`: the gradient of a linear layer's input.
    Nn,
    /// `a [k,m]ᵀ · b [k,n]`: the gradient of a linear layer's weight. It sums over the rows of all images.
    Tn,
}

impl GemmLayout {
    /// Returns true for the layout of a linear layer.
    pub fn is_linear(&self) -> bool {
        *self == Self::Nt
    }
}

/// A linear layer as the libraries distinguish it: `activation(x [m,k] · weight [n,k]ᵀ + bias) + residual`. Or a GEMM of a backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LinearShape {
    /// Rows of x: the tokens of all images.
    pub m: usize,
    /// Output channels.
    pub n: usize,
    /// Input channels.
    pub k: usize,
    /// Layout of x and the weight.
    #[serde(default, skip_serializing_if = "GemmLayout::is_linear")]
    pub layout: GemmLayout,
    /// Dtype of x and the weight. Unless it has 8 bits, also of all other operands.
    pub dtype: DType,
    /// Dtype of x if it differs from that of the weight: E5M2, for gradients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<DType>,
    /// Dtypes of the other operands, if x and the weight are FP8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub float8: Option<Float8Shape>,
    /// Dtype of the other operands, if x and the weight are int8 with a scale per row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int8: Option<DType>,
    /// True if the weight is 2:4 sparse and the GPU can skip its zeros.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse: bool,
    /// True if there is a bias. In layout [`GemmLayout::Tn`], if the sums of the columns of `a` are computed too. In [`GemmLayout::Nn`], if those
    /// of the result are.
    pub bias: bool,
    /// Activation function of the sum.
    pub activation: Option<Activation>,
    /// True for a layer in training: the sum is written too, or, in layout [`GemmLayout::Nn`], is an operand, and the product is multiplied
    /// by the activation's derivative at it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preactivation: bool,
    /// True if there is a residual.
    pub residual: bool,
}

impl LinearShape {
    /// Returns true if the builtin kernel for few rows can compute the layer.
    pub(in crate::exec) fn has_few_rows(&self) -> bool {
        let is_plain = self.layout == GemmLayout::Nt
            && self.left.is_none()
            && self.float8.is_none()
            && self.int8.is_none()
            && !self.sparse
            && !self.preactivation;
        is_plain && self.m <= MAX_ROWS
    }
}

/// Dtypes of an FP8 GEMM's other operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Float8Shape {
    /// Dtype of bias, residual and result.
    pub activations: DType,
    /// True if the result is FP8 too.
    pub result: bool,
    /// True if each row of x and of the weight has a scale. Otherwise each of the two has one scale.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rows: bool,
}

impl LinearShape {
    /// Returns the GEMM with `m` rows.
    pub(in crate::exec) fn gemm(&self, m: usize) -> Gemm {
        let gemm = Gemm {
            left: self.left,
            ..Gemm::new(m, self.n, self.k, self.dtype)
        };
        match self.layout {
            GemmLayout::Nt => Gemm {
                left: self.left,
                ..Gemm::linear(m, self.n, self.k, self.dtype)
            },
            GemmLayout::Nn => gemm,
            GemmLayout::Tn => Gemm {
                a: Matrix::transposed(m),
                ..gemm
            },
        }
    }

    /// Returns the dtype of bias and residual.
    pub fn activations(&self) -> DType {
        self.float8
            .map(|float8| float8.activations)
            .or(self.int8)
            .unwrap_or(self.dtype)
    }

    /// Returns true if the result is FP8.
    pub fn has_float8_result(&self) -> bool {
        self.float8.is_some_and(|float8| float8.result)
    }

    /// Returns true if x and the weight are FP8 with a scale per row.
    pub fn has_float8_rows(&self) -> bool {
        self.float8.is_some_and(|float8| float8.rows)
    }

    /// Returns the floating-point operations of the GEMM.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Returns true if a library can compute the layer with its epilogue, or without it if a kernel would follow then.
    pub(in crate::exec) fn has_form(&self, epilogue: bool, options: SelectOptions) -> bool {
        if epilogue {
            options.epilogues && self.epilogue().is_some()
        } else if self.preactivation {
            false
        } else {
            self.bias
                || self.activation.is_some()
                || self.residual
                || self.has_float8_result()
                || self.has_float8_rows()
        }
    }

    /// Returns the epilogue that computes what follows the GEMM. `None` if no epilogue does, as for int8. The libraries add a residual as
    /// `beta · C` before the activation, so no epilogue has both.
    ///
    /// The libraries' GELU is the tanh form, at most 4.8e-4 from the exact GELU. In f16 and bf16 its result is still closer to the exact
    /// GELU than that of separate kernels, since the sum is not rounded before (a test below measures it). In f32 no GELU is fused, not
    /// even the tanh form: cuBLASLt 13.0 uses an approximate tanh, with errors up to 4e-6.
    pub fn epilogue(&self) -> Option<Epilogue> {
        if self.int8.is_some() {
            return None;
        }
        // In f16, the sums of cuBLASLt 13.0 are off by up to 8e-4 of their size.
        if self.layout == GemmLayout::Tn && self.bias {
            return (self.dtype != DType::F16).then_some(Epilogue::BiasGradient);
        }
        let narrow = matches!(self.activations(), DType::F16 | DType::BF16);
        if self.preactivation {
            return self.epilogue_in_training();
        }
        match self.activation {
            None => Some(if self.bias { Epilogue::Bias } else { Epilogue::None }),
            Some(_) if self.residual => None,
            Some(Activation::GeluTanh | Activation::GeluErf) if narrow => Some(if self.bias {
                Epilogue::BiasGelu
            } else {
                Epilogue::Gelu
            }),
            Some(Activation::Relu) => self.bias.then_some(Epilogue::BiasRelu),
            Some(_) => None,
        }
    }

    /// Returns the epilogue of a layer in training in bf16. The derivative of the tanh form is at most 8.7e-4 from that of the exact GELU, less
    /// than bf16 rounds by (a test below measures it), but more than f16 does.
    fn epilogue_in_training(&self) -> Option<Epilogue> {
        let plain = self.float8.is_none() && !self.residual && !self.sparse && self.dtype == DType::BF16;
        match (self.layout, self.activation) {
            (GemmLayout::Nt, Some(Activation::GeluTanh | Activation::GeluErf)) if plain => {
                Some(if self.bias {
                    Epilogue::BiasGeluAux
                } else {
                    Epilogue::GeluAux
                })
            }
            (GemmLayout::Nn, Some(Activation::GeluTanh | Activation::GeluErf)) if plain => {
                Some(Epilogue::GeluGradient)
            }
            _ => None,
        }
    }
}

/// Formats as `linear 50432×768×3072 bf16 +bias+gelu` (m, k, n), or `gemm_tn 768×50432×3072 bf16`.
impl fmt::Display for LinearShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.layout {
            GemmLayout::Nt => "linear",
            GemmLayout::Nn => "gemm_nn",
            GemmLayout::Tn => "gemm_tn",
        };
        write!(f, "{name} {}×{}×{} ", self.m, self.k, self.n)?;
        if let Some(left) = self.left {
            write!(f, "{left}·")?;
        }
        write!(f, "{}", self.dtype)?;
        if self.activations() != self.dtype && !self.has_float8_result() {
            write!(f, "→{}", self.activations())?;
        }
        if self.has_float8_rows() {
            f.write_str(" by rows")?;
        }
        if self.sparse {
            f.write_str(" 2:4")?;
        }
        let activation = self.activation.map(Activation::name);
        let parts = [
            self.bias.then_some(match self.layout {
                GemmLayout::Tn | GemmLayout::Nn => "bias gradient",
                GemmLayout::Nt => "bias",
            }),
            activation,
            self.preactivation.then_some(match self.layout {
                GemmLayout::Nn => "derivative",
                _ => "kept sum",
            }),
            self.residual.then_some("residual"),
        ];
        if parts.iter().any(Option::is_some) {
            f.write_str(" ")?;
        }
        parts
            .into_iter()
            .flatten()
            .try_for_each(|part| write!(f, "+{part}"))
    }
}

/// A patch embedding: u8 pixels `[images, height, width, 3]`, normalised or not, to `n` channels for each whole patch, and an optional
/// bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PatchEmbeddingShape {
    /// Images of the batch.
    pub images: usize,
    /// Height of an image in pixels.
    pub height: usize,
    /// Width of an image in pixels.
    pub width: usize,
    /// Height and width of a patch.
    pub patch: [usize; 2],
    /// Output channels.
    pub n: usize,
    /// Dtype of weight and result.
    pub dtype: DType,
    /// True if there is a bias.
    pub bias: bool,
}

impl PatchEmbeddingShape {
    /// Returns the rows and columns of whole patches.
    fn grid(&self) -> [usize; 2] {
        [
            self.height / self.patch[0].max(1),
            self.width / self.patch[1].max(1),
        ]
    }

    /// Returns the height and width of the pixels in whole patches.
    pub fn covered(&self) -> [usize; 2] {
        let [down, across] = self.grid();
        [down * self.patch[0], across * self.patch[1]]
    }

    /// Returns the linear layer that multiplies the patch matrix.
    pub fn linear(&self) -> LinearShape {
        let [down, across] = self.grid();
        LinearShape {
            m: self.images * down * across,
            n: self.n,
            k: 3 * self.patch[0] * self.patch[1],
            layout: GemmLayout::Nt,
            dtype: self.dtype,
            left: None,
            float8: None,
            int8: None,
            sparse: false,
            bias: self.bias,
            activation: None,
            preactivation: false,
            residual: false,
        }
    }

    /// Returns the convolution of the pixels, in the same dtype. It uses the linear layer's weight unchanged.
    pub fn convolution(&self) -> ConvolutionShape {
        let [height, width] = self.covered();
        ConvolutionShape {
            batch: self.images,
            channels: 3,
            height,
            width,
            features: self.n,
            kernel: self.patch,
            stride: self.patch,
            dilation: [1; 2],
            padding: [0; 2],
            groups: 1,
            channels_last: true,
            dtype: self.dtype,
        }
    }
}

/// Formats as `patch embedding 64×224×224 patch 16×16 to 768 bf16 +bias`.
impl fmt::Display for PatchEmbeddingShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            images,
            height,
            width,
            patch: [rows, columns],
            n,
            dtype,
            bias,
        } = self;
        let bias = if *bias { " +bias" } else { "" };
        write!(
            f,
            "patch embedding {images}×{height}×{width} patch {rows}×{columns} to {n} {dtype}{bias}"
        )
    }
}

/// Self-attention: queries and keys of the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Images of the batch.
    pub images: usize,
    /// Number of heads.
    pub heads: usize,
    /// Tokens per image.
    pub tokens: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Dtype of all operands.
    pub dtype: DType,
}

impl AttentionShape {
    /// Returns MIOpen's description of the problem, with the `scale` of the scores.
    pub fn scaled(&self, scale: f32) -> MultiHeadAttention {
        MultiHeadAttention {
            batch: self.images,
            heads: self.heads,
            tokens: self.tokens,
            head_dim: self.head_dim,
            scale,
            dtype: self.dtype,
        }
    }
}

/// Formats as `attention 64×12 heads×197 tokens×64 bf16`.
impl fmt::Display for AttentionShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            images,
            heads,
            tokens,
            head_dim,
            dtype,
        } = self;
        write!(
            f,
            "attention {images}×{heads} heads×{tokens} tokens×{head_dim} {dtype}"
        )
    }
}

/// Attention with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PatternAttentionShape {
    /// Hash of the pattern: of its expressions and the values of its scalars. In JSON it is hexadecimal.
    #[serde(with = "hexadecimal")]
    pub pattern: u64,
    /// Images of the batch.
    pub images: usize,
    /// Number of heads.
    pub heads: usize,
    /// Queries per image.
    pub queries: usize,
    /// Keys per image.
    pub keys: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Dtype of queries, keys and values.
    pub dtype: DType,
}

/// Formats as `pattern attention 64×12 heads×197×197 tokens×64 bf16 of 85944171f73967e8` (queries, keys; the pattern's hash).
impl fmt::Display for PatternAttentionShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pattern,
            images,
            heads,
            queries,
            keys,
            head_dim,
            dtype,
        } = self;
        write!(
            f,
            "pattern attention {images}×{heads} heads×{queries}×{keys} tokens×{head_dim} {dtype} of {pattern:016x}"
        )
    }
}

/// A convolution: `activation(x [images,height,width,channels] ∗ weight + bias) + residual`, in the dtype of all operands. Pairs are down and
/// across.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvShape {
    /// Images of the batch.
    pub images: usize,
    /// Height and width of x.
    pub size: [usize; 2],
    /// Channels of x.
    pub channels: usize,
    /// Channels of the result.
    pub features: usize,
    /// Elements of a window. Files also name the measured candidate `kernel`.
    #[serde(rename = "window")]
    pub kernel: [usize; 2],
    /// Distance of windows.
    pub stride: [usize; 2],
    /// Distance of a window's elements.
    pub dilation: [usize; 2],
    /// Padding: `[[top, bottom], [left, right]]`.
    pub padding: [[usize; 2]; 2],
    /// Number of groups of channels.
    pub groups: usize,
    /// Dtype of all operands.
    pub dtype: DType,
    /// True if there is a bias.
    pub bias: bool,
    /// Activation function of the sum.
    pub activation: Option<Activation>,
    /// True if there is a residual.
    pub residual: bool,
}

impl ConvShape {
    /// Returns the height and width of the result.
    fn result(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let reach = self.kernel[axis].saturating_sub(1) * self.dilation[axis] + 1;
            let [before, after] = self.padding[axis];
            let free = (self.size[axis] + before + after).saturating_sub(reach);
            free / self.stride[axis].max(1) + 1
        })
    }

    /// Returns the floating-point operations of the sums.
    pub fn flops(&self) -> f64 {
        let result = self.result().into_iter().chain([self.images, self.features]);
        let length = self.kernel.iter().product::<usize>() * self.channels / self.groups.max(1);
        2.0 * result.map(|extent| extent as f64).product::<f64>() * length as f64
    }

    /// Returns the convolution without what follows. `None` if the padding of an axis differs between its ends, which MIOpen does not
    /// compute.
    pub fn convolution(&self) -> Option<ConvolutionShape> {
        let [[top, bottom], [left, right]] = self.padding;
        (top == bottom && left == right).then_some(ConvolutionShape {
            batch: self.images,
            channels: self.channels,
            height: self.size[0],
            width: self.size[1],
            features: self.features,
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.dilation,
            padding: [top, left],
            groups: self.groups,
            channels_last: true,
            dtype: self.dtype,
        })
    }

    /// Returns the elements of x, of the weight and of the result.
    pub fn elements(&self) -> [usize; 3] {
        let [rows, columns] = self.result();
        let weight = self.kernel.iter().product::<usize>() * self.channels / self.groups.max(1);
        [
            self.images * self.size[0] * self.size[1] * self.channels,
            self.features * weight,
            self.images * rows * columns * self.features,
        ]
    }
}

/// Formats as `conv 64×56×56×64 3×3 padded 1,1,1,1 to 64 bf16 +bias+relu`.
impl fmt::Display for ConvShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            images,
            size: [height, width],
            channels,
            features,
            kernel: [down, across],
            stride,
            dilation,
            padding: [[top, bottom], [left, right]],
            groups,
            dtype,
            ..
        } = self;
        write!(f, "conv {images}×{height}×{width}×{channels} {down}×{across}")?;
        if *stride != [1; 2] {
            write!(f, " /{}×{}", stride[0], stride[1])?;
        }
        if *dilation != [1; 2] {
            write!(f, " dilated {}×{}", dilation[0], dilation[1])?;
        }
        write!(f, " padded {top},{bottom},{left},{right}")?;
        if *groups != 1 {
            write!(f, " in {groups} groups")?;
        }
        write!(f, " to {features} {dtype}")?;
        let activation = self.activation.map(Activation::name);
        let parts = [
            self.bias.then_some("bias"),
            activation,
            self.residual.then_some("residual"),
        ];
        if parts.iter().any(Option::is_some) {
            f.write_str(" ")?;
        }
        parts
            .into_iter()
            .flatten()
            .try_for_each(|part| write!(f, "+{part}"))
    }
}

/// A u64 as a hexadecimal string.
mod hexadecimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{value:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::super::tests::{ATTENTION, PATCHES, shape};
    use super::*;

    /// Neither form reads pixels beyond the last whole patch.
    #[test]
    fn a_patch_embedding_is_a_linear_layer_or_a_convolution_of_as_many_products() {
        let (linear, convolution) = (PATCHES.linear(), PATCHES.convolution());
        assert_eq!((linear.m, linear.n, linear.k), (2 * 4 * 8, 7, 96));
        assert_eq!([convolution.height, convolution.width], [32, 32]);
        assert_eq!(Problem::from(PATCHES).flops(), linear.flops());
        assert_eq!(
            PATCHES.to_string(),
            "patch embedding 2×33×32 patch 8×4 to 7 bf16 +bias"
        );
        assert_eq!(
            Problem::from(ATTENTION).flops(),
            2.0 * 2.0 * (2 * 3 * 5 * 5 * 8) as f64
        );
    }

    /// In units of the slope. bf16 rounds slopes near 1 by up to 2⁻⁹ = 2e-3 below 1, and by twice that above.
    #[test]
    fn the_slope_of_the_tanh_form_is_that_of_gelu_within_a_rounding_to_bf16() {
        use hipvit_graph::op::ActivationBackward;
        let slope = |activation, x: f64| {
            let backward = ActivationBackward {
                activation,
                secant: false,
                sums: false,
            };
            backward.slope(x)
        };
        let at = |i: i32| f64::from(i) / 1000.0;
        let errors = (-8000..=8000)
            .map(at)
            .map(|x| (slope(Activation::GeluTanh, x) - slope(Activation::GeluErf, x)).abs());
        let worst = errors.fold(0.0, f64::max);
        assert!((8.6e-4..8.7e-4).contains(&worst), "{worst}");
    }

    #[test]
    fn layers_in_training_have_epilogues_in_bf16() {
        let of = |activation, layout, dtype| {
            let shape = LinearShape {
                activation: Some(activation),
                preactivation: true,
                layout,
                dtype,
                ..shape(3)
            };
            shape.epilogue()
        };
        let gelu = Activation::GeluErf;
        assert_eq!(of(gelu, GemmLayout::Nt, DType::BF16), Some(Epilogue::BiasGeluAux));
        assert_eq!(
            of(gelu, GemmLayout::Nn, DType::BF16),
            Some(Epilogue::GeluGradient)
        );
        assert_eq!(of(gelu, GemmLayout::Nn, DType::F16), None, "not exact enough");
        assert_eq!(of(gelu, GemmLayout::Nt, DType::F32), None);
        assert_eq!(of(Activation::Silu, GemmLayout::Nt, DType::BF16), None);
    }

    #[test]
    fn epilogues_are_used_where_they_compute_the_same() {
        let of = |activation, bias, residual, dtype| {
            let shape = LinearShape {
                activation,
                bias,
                residual,
                dtype,
                ..shape(3)
            };
            shape.epilogue()
        };
        assert_eq!(of(None, false, true, DType::F32), Some(Epilogue::None));
        assert_eq!(of(None, true, true, DType::F32), Some(Epilogue::Bias));
        let erf = Some(Activation::GeluErf);
        assert_eq!(of(erf, true, false, DType::BF16), Some(Epilogue::BiasGelu));
        assert_eq!(of(erf, true, false, DType::F16), Some(Epilogue::BiasGelu));
        assert_eq!(of(erf, true, false, DType::F32), None);
        assert_eq!(of(erf, true, true, DType::BF16), None, "the residual comes last");
        let tanh = Some(Activation::GeluTanh);
        assert_eq!(of(tanh, false, false, DType::F16), Some(Epilogue::Gelu));
        assert_eq!(of(tanh, true, false, DType::F32), None, "not exact enough");
        assert_eq!(of(Some(Activation::Silu), true, false, DType::BF16), None);
    }

    /// Compares with the exact GELU in f64 for normally distributed sums. Unfused, the GEMM's result is rounded, then the bias is added and
    /// the result is rounded again. Fused, there is one rounding.
    #[test]
    fn fused_tanh_is_nearer_than_unfused_erf_in_half_precision() {
        const BIAS: f64 = 0.05;
        const SAMPLES: usize = 100_000;
        let erf = |x: f64| 0.5 * x * libm::erfc(-x / 2f64.sqrt());
        let tanh = |x: f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        };
        type Round = fn(f64) -> f64;
        let rounds: [(&str, Round); 2] = [
            ("f16", |x| f16::from_f64(x).to_f64()),
            ("bf16", |x| bf16::from_f64(x).to_f64()),
        ];
        for ((name, round), deviation) in rounds
            .iter()
            .flat_map(|r| [0.25, 0.5, 1.0, 2.0, 4.0].map(|d| (r, d)))
        {
            let (mut unfused, mut fused) = ([0.0f64; 2], [0.0f64; 2]);
            for i in 0..SAMPLES {
                // Quantiles of a normal distribution, by bisection of its distribution function.
                let p = (i as f64 + 0.5) / SAMPLES as f64;
                let (mut low, mut high) = (-6.0, 6.0);
                for _ in 0..40 {
                    let middle = 0.5 * (low + high);
                    let below = 0.5 * libm::erfc(-middle / 2f64.sqrt()) < p;
                    (low, high) = if below { (middle, high) } else { (low, middle) };
                }
                let sum = deviation * low;
                let exact = erf(sum + BIAS);
                for (errors, result) in [
                    (&mut unfused, round(erf(round(sum) + BIAS))),
                    (&mut fused, round(tanh(sum + BIAS))),
                ] {
                    let error = (result - exact).abs();
                    *errors = [errors[0] + error * error, errors[1].max(error)];
                }
            }
            assert!(
                fused[0] < unfused[0],
                "{name}, {deviation}: squares {fused:?} {unfused:?}"
            );
            assert!(
                fused[1] <= unfused[1],
                "{name}, {deviation}: largest {fused:?} {unfused:?}"
            );
        }
    }
}
