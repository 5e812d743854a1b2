//! Ops of a graph. Each op is one file with all device-independent facts: a struct of its attributes that implements [`Definition`].
//! Its derivative appends nodes through [`GraphBuilder`], since graphs are above ops. What two ops would import from each other is in a file
//! below both, such as `op/pool/attributes.rs`.
//!
//! Shapes: `B` batch, `N` tokens, `D` channels, `H`×`W` image, `h`×`w` patch. All tensors are row-major.
//!
//! [`for_each_op`](crate::for_each_op) lists all ops. It declares their modules here, and generates the enum [`Op`] and every dispatch over
//! it, also in the crates that compute ops.

mod attention_heads;
mod definition;
mod error;
mod graph_builder;
mod norms;
pub mod operands;
mod optimizers;
mod pixel_layout;
mod shape;
mod window_gradients;
mod windows;

use std::any::Any;
use std::fmt;

use crate::array::{Array, Real};
use crate::cases::{self, Case, Cases};
use crate::dtype::DType;
use crate::value::ValueId;

pub use attention::AttentionOperands;
pub use contrastive_loss::ContrastiveKind;
pub use custom::CustomOp;
pub use definition::{Definition, Division, Locality, OperandShare};
pub use deformable_attention::PointSampling;
pub use distillation_loss::DistillationKind;
pub use elementwise::{Broadcast, Formula};
pub use error::OpError;
pub use graph_builder::{AnyOp, Gradients, GraphBuilder, NodeValues, only_gradient};
pub use grid_sample::{Outside, SampleKernel};
pub use interpolate::{Coordinates, InterpolationKernel, NearestRounding};
pub use loss::LossKind;
pub use pad::PadMode;
pub use permute_tokens::TokenOrder;
pub use pixel_layout::PixelLayout;
pub use recurrence::RecurrentCell;
pub use reduce::ReduceKind;
pub use rope::RopePairs;
pub use round_float8::{Float8Source, HISTORY, STATISTICS};
pub use scatter_elements::ScatterReduction;
pub use shape::Shape;
pub use transpose::Combine;
pub use windows::Windows;

pub use crate::float8::{Float8, Float8Scale};
pub use crate::int8::Int8Grid;
pub use crate::rounding::{Levels, Rounding};

/// Calls the macro `$then` with `module: Op` for every op, in alphabetical order. An op is registered by a line here.
#[macro_export]
macro_rules! for_each_op {
    ($then:ident) => {
        $then! {
            accumulate: Accumulate,
            activation: Activation,
            activation_backward: ActivationBackward,
            adamw: AdamW,
            adamw_bf16: AdamWBf16,
            adamw_int8: AdamWInt8,
            add: Add,
            affine: Affine,
            all_reduce: AllReduce,
            attention: Attention,
            attention_backward: AttentionBackward,
            average_pool: AveragePool,
            batch_mat_mul: BatchMatMul,
            concat: Concat,
            contrastive_loss: ContrastiveLoss,
            contrastive_loss_backward: ContrastiveLossBackward,
            conv: Conv,
            conv_transpose: ConvTranspose,
            cum_sum: CumSum,
            custom: Custom,
            deformable_attention: DeformableAttention,
            deformable_attention_backward: DeformableAttentionBackward,
            detach: Detach,
            detection_loss: DetectionLoss,
            distillation_loss: DistillationLoss,
            distillation_loss_backward: DistillationLossBackward,
            dropout: Dropout,
            elementwise: Elementwise,
            exchange: Exchange,
            exchange_result: ExchangeResult,
            expand: Expand,
            expand_as: ExpandAs,
            fake_quantize: FakeQuantize,
            fake_quantize_backward: FakeQuantizeBackward,
            gather: Gather,
            gather_backward: GatherBackward,
            gather_elements: GatherElements,
            grid_mask: GridMask,
            grid_positions: GridPositions,
            grid_sample: GridSample,
            group_norm: GroupNorm,
            interpolate: Interpolate,
            l2_norm: L2Norm,
            lamb: Lamb,
            layer_norm: LayerNorm,
            layer_norm_backward: LayerNormBackward,
            linear: Linear,
            lion: Lion,
            loss: Loss,
            loss_backward: LossBackward,
            mat_mul: MatMul,
            max_pool: MaxPool,
            max_pool_backward: MaxPoolBackward,
            moving_average: MovingAverage,
            mul: Mul,
            mul_scalar: MulScalar,
            non_max_suppression: NonMaxSuppression,
            normalize: Normalize,
            pad: Pad,
            paged_attention: PagedAttention,
            paged_pattern_attention: PagedPatternAttention,
            patch_conv: PatchConv,
            patch_extract: PatchExtract,
            patch_extract_backward: PatchExtractBackward,
            pattern_attention: PatternAttention,
            pattern_attention_backward: PatternAttentionBackward,
            permute: Permute,
            permute_tokens: PermuteTokens,
            pool: Pool,
            pool_backward: PoolBackward,
            prepend: Prepend,
            rank_part: RankPart,
            recurrence: Recurrence,
            reduce: Reduce,
            relative_bias: RelativeBias,
            relative_bias_backward: RelativeBiasBackward,
            reshape: Reshape,
            rms_norm: RmsNorm,
            rms_norm_backward: RmsNormBackward,
            rope: Rope,
            round_float8: RoundFloat8,
            sample: Sample,
            scale: Scale,
            scale_images: ScaleImages,
            scatter_elements: ScatterElements,
            sgd: Sgd,
            slice: Slice,
            softmax: Softmax,
            sum_to_size: SumToSize,
            swiglu: SwiGlu,
            swiglu_backward: SwiGluBackward,
            swiglu_norm: SwiGluNorm,
            token_loss: TokenLoss,
            token_loss_backward: TokenLossBackward,
            token_scores: TokenScores,
            tokens: Tokens,
            top_k: TopK,
            transpose: Transpose,
            write_rows: WriteRows,
        }
    };
}

macro_rules! declare {
    ($($module:ident: $Op:ident,)*) => {
        $(pub mod $module;)*
        $(pub use $module::$Op;)*

        /// An op with its attributes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($Op), "`].")] $Op($Op),)*
        }

        $(impl From<$Op> for Op {
            fn from(op: $Op) -> Self {
                Self::$Op(op)
            }
        })*

        impl Op {
            /// Returns the op of the type-erased attributes `op`, or the type-erased `Op`. `None` for any other type.
            pub(crate) fn from_any(op: &dyn Any) -> Option<Self> {
                $(if let Some(op) = op.downcast_ref::<$Op>() {
                    return Some(Self::$Op(op.clone()));
                })*
                op.downcast_ref::<Self>().cloned()
            }
        }

        /// Dispatches to the [`Definition`] of each op.
        impl Op {
            /// Name, as `hipvit inspect` prints it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Op(op) => op.op_name(),)*
                }
            }

            fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$Op(op) => op.fmt_attributes(f),)*
                }
            }

            /// Shapes of the results for operands of these shapes.
            ///
            /// # Errors
            ///
            /// [`OpError`] if the op does not accept operands of these shapes.
            pub fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
                match self {
                    $(Self::$Op(op) => op.shapes(operands),)*
                }
            }

            /// Dtype of result `index` in a plan with activations of `dtype`.
            pub fn result_dtype(&self, index: usize, dtype: DType) -> DType {
                match self {
                    $(Self::$Op(op) => op.result_dtype(index, dtype),)*
                }
            }

            /// Dtype of operand `index` in a plan with activations of `dtype`: f32 for operands that are never rounded.
            pub fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
                match self {
                    $(Self::$Op(op) => op.operand_dtype(index, dtype),)*
                }
            }

            /// Operand whose dtype the first result has, if the op moves elements of any dtype.
            pub fn keeps_dtype_of(&self) -> Option<usize> {
                match self {
                    $(Self::$Op(op) => op.keeps_dtype_of(),)*
                }
            }

            /// Floating-point operations: an addition, a multiplication or a transcendental function counts as one.
            pub fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
                match self {
                    $(Self::$Op(op) => op.flops(operands, results),)*
                }
            }

            /// Elements of operand `index` that the op reads, for operands and results of these shapes.
            pub fn elements_read(&self, index: usize, operands: &[&[usize]], results: &[Shape]) -> usize {
                match self {
                    $(Self::$Op(op) => op.elements_read(index, operands, results),)*
                }
            }

            /// Operand whose memory the first result may overwrite.
            pub fn may_alias(&self) -> Option<usize> {
                match self {
                    $(Self::$Op(op) => op.may_alias(),)*
                }
            }

            /// Returns true if the first result is the first operand with some rows replaced.
            pub fn replaces_rows(&self) -> bool {
                match self {
                    $(Self::$Op(op) => op.replaces_rows(),)*
                }
            }

            /// Part of the operands that a part of result `index` depends on.
            pub fn locality(&self, index: usize) -> Locality {
                match self {
                    $(Self::$Op(op) => op.locality(index),)*
                }
            }

            /// Operands of which each token of the result needs only one token, the same one. `None` if it needs all of every operand.
            pub fn tokenwise(&self) -> Option<Vec<usize>> {
                match self {
                    $(Self::$Op(op) => op.tokenwise(),)*
                }
            }

            /// Division of the op among ranks with a part of the channels each. `None` if it cannot be divided.
            pub fn division(&self, blocks: usize) -> Option<Division> {
                match self {
                    $(Self::$Op(op) => op.division(blocks),)*
                }
            }

            /// Returns the op of a rank if `ranks` ranks divide its channels.
            #[must_use]
            pub fn of_rank(&self, ranks: usize) -> Self {
                match self {
                    $(Self::$Op(op) => Self::$Op(op.of_rank(ranks)),)*
                }
            }

            /// Returns how ranks that divide the op's channels divide the constant operand `index` of this shape.
            pub fn operand_share(&self, index: usize, shape: &[usize]) -> OperandShare {
                match self {
                    $(Self::$Op(op) => op.operand_share(index, shape),)*
                }
            }

            /// Computes the results by the reference implementation.
            ///
            /// # Errors
            ///
            /// [`OpError`] if the op rejects operands of these shapes.
            pub fn eval<T: Real>(&self, operands: &[&Array<T>]) -> Result<Vec<Array<T>>, OpError> {
                match self {
                    $(Self::$Op(op) => op.eval(operands),)*
                }
            }

            /// Computes the results of every rank of a tensor-parallel model. Each rank has its own operands.
            ///
            /// # Errors
            ///
            /// [`OpError`] if the op rejects the operands.
            pub fn eval_ranks<T: Real>(&self, ranks: &[Vec<&Array<T>>]) -> Result<Vec<Vec<Array<T>>>, OpError> {
                match self {
                    $(Self::$Op(op) => op.eval_ranks(ranks),)*
                }
            }

            /// Tolerance of result `index` for these operands, whose elements are in `dtype` (except for pixels).
            pub fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
                match self {
                    $(Self::$Op(op) => op.tolerance(index, operands, dtype),)*
                }
            }

            /// Vector-Jacobian product: see [`Definition::vjp`].
            ///
            /// # Errors
            ///
            /// [`OpError::Derivative`] if the op has no derivative.
            pub fn vjp(
                &self,
                builder: &mut dyn GraphBuilder,
                node: NodeValues<'_>,
                gradients: &[Option<ValueId>],
            ) -> Result<Gradients, OpError> {
                match self {
                    $(Self::$Op(op) => op.vjp(builder, node, gradients),)*
                }
            }
        }

        /// Cases of all ops.
        impl Cases<Op> {
            /// Returns the cases of all ops. `is_micro` selects the smallest set that covers each form of each kernel.
            pub fn of_all_ops(scale: cases::Scale, is_micro: bool) -> Vec<Case<Op>> {
                let mut all = Self::new(scale, is_micro);
                $({
                    let mut of_op = Cases::new(scale, is_micro);
                    $Op::cases(&mut of_op);
                    all.extend(of_op);
                })*
                all.into_vec()
            }
        }
    };
}
for_each_op!(declare);

impl AnyOp for Op {}

/// Formats the op with the fused operations, such as `linear+bias+gelu+residual`.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.fmt_attributes(f)
    }
}
