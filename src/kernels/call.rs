//! Calls that compute a step of a plan on a GPU. Addresses are those of the device.

use std::sync::Arc;

use hipvit_graph::op::exchange::ExchangeKind;

use super::attention::call::AttentionCall;
use super::bindings::BiasActivationArgs;
use super::conv::call::ConvCall;
use super::custom::call::CustomCall;
use super::generated_call::GeneratedCall;
use super::linear::call::{LinearCall, SparseForm};
use super::patch_extract::call::PatchEmbeddingCall;
use super::pattern_attention::attention_call::PatternAttentionCall;
use super::{KernelCall, KernelError};
use crate::hip::{DeviceAddress, Gemm};
use crate::tensor::DType;

/// A unit of submission. Addresses are those of the device.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "a step has few calls, and a launch copies its arguments anyway"
)]
pub(crate) enum Call {
    Kernel(KernelCall),
    Gemm {
        gemm: Gemm,
        a: DeviceAddress,
        b: DeviceAddress,
        c: DeviceAddress,
    },
    Linear(LinearCall),
    /// First of the two steps of a patch embedding.
    Patches(PatchEmbeddingCall),
    /// Second step of a patch embedding.
    Projection(PatchEmbeddingCall),
    Attention(AttentionCall),
    CopyRows(CopyRows),
    /// All-reduce of a tensor-parallel model.
    AllReduce(AllReduceCall),
    /// Starts a collective of the ranks of a training step.
    Collective(CollectiveCall),
    /// Waits for the end of a collective.
    AwaitCollective(CollectiveCall),
    /// This rank's part of a tensor that all ranks of a training step have.
    RankPart(RankPartCall),
    /// Sets bytes to zero.
    Zero {
        to: DeviceAddress,
        bytes: usize,
    },
    /// A kernel of an op that another crate defines.
    Custom(Box<CustomCall>),
    /// A kernel of a generated program.
    Generated(Arc<GeneratedCall>),
    /// Convolution of images.
    Conv(ConvCall),
    /// Attention with a pattern, whose tile is selected.
    PatternAttention(Arc<PatternAttentionCall>),
}

impl Call {
    /// Returns the form of the weight, if this is a linear layer with a 2:4 sparse weight.
    pub(crate) fn sparse(&self) -> Option<SparseForm> {
        match self {
            Self::Linear(call) => call.sparse,
            _ => None,
        }
    }
}

impl<K: Into<KernelCall>> From<K> for Call {
    fn from(kernel: K) -> Self {
        Self::Kernel(kernel.into())
    }
}

impl From<GeneratedCall> for Call {
    fn from(call: GeneratedCall) -> Self {
        Self::Generated(Arc::new(call))
    }
}

impl From<PatternAttentionCall> for Call {
    fn from(call: PatternAttentionCall) -> Self {
        Self::PatternAttention(Arc::new(call))
    }
}

/// Copy of `rows` rows of `bytes` bytes each. Strides are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRows {
    pub(crate) from: DeviceAddress,
    pub(crate) from_stride: usize,
    pub(crate) to: DeviceAddress,
    pub(crate) to_stride: usize,
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
}

/// Collective on a bucket of elements. Equally long parts of the ranks follow each other. Before and after the collective, a rank's own part is
/// at the start of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CollectiveCall {
    /// Number of the exchange.
    pub(crate) id: u32,
    pub(crate) kind: ExchangeKind,
    pub(crate) bucket: DeviceAddress,
    pub(crate) elements: usize,
    pub(crate) ranks: usize,
    pub(crate) dtype: DType,
}

/// Copy of a rank's part of a tensor in f32, which is padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankPartCall {
    pub(crate) from: DeviceAddress,
    pub(crate) to: DeviceAddress,
    /// Elements of the tensor.
    pub(crate) elements: usize,
    /// Elements of the part.
    pub(crate) part: usize,
    pub(crate) ranks: usize,
}

/// All-reduce of matrices `[rows, channels]`, with bias and residual, which are added once. Null if absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllReduceCall {
    pub(crate) from: DeviceAddress,
    pub(crate) to: DeviceAddress,
    pub(crate) bias: DeviceAddress,
    pub(crate) residual: DeviceAddress,
    pub(crate) rows: usize,
    pub(crate) channels: usize,
    pub(crate) dtype: DType,
}

impl AllReduceCall {
    /// Bytes of one rank's summand.
    pub(crate) fn bytes(&self) -> usize {
        self.rows * self.channels * self.dtype.size()
    }

    /// Returns the kernel after a sum without bias and residual, if they exist.
    pub(crate) fn follows(&self) -> Result<Option<BiasActivationArgs>, KernelError> {
        if self.bias.is_null() && self.residual.is_null() {
            return Ok(None);
        }
        let addresses = [self.to, self.bias, self.residual, self.to];
        BiasActivationArgs::new(addresses, [self.rows, self.channels], None).map(Some)
    }
}
