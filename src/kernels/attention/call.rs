//! Attention as a call.

use super::{ScoreBias, Strided};
use crate::hip::DeviceAddress;
use crate::kernels::bindings::RopeArgs;
use crate::ops::Attention;
use crate::tensor::DType;

/// Self-attention of all images: queries, keys, values and the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionCall {
    pub(crate) spec: Attention,
    pub(crate) images: usize,
    pub(crate) dtype: DType,
    pub(crate) operands: [Strided; 4],
    /// Bias of the scores. With it, only builtin kernels compute the call.
    pub(crate) bias: Option<ScoreBias>,
    /// Rotation of queries and keys, in place, if the fused kernel does not rotate.
    pub(crate) rope: Option<RopeArgs>,
    /// Address of the key mask, u8 `[images, keys]`. Null without a mask. With it, only builtin kernels compute the call.
    pub(crate) key_mask: DeviceAddress,
    /// Memory for the scores of unfused attention.
    pub(crate) scratch: DeviceAddress,
    /// Scale of an FP8 result. With it, only builtin kernels compute the call.
    pub(crate) float8: Option<f32>,
}
