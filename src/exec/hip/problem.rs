//! Converts calls to [`Problem`]s, the keys by which kernels and libraries are selected.

use super::lower::{AttentionCall, Call, ConvCall, LinearCall, PatchEmbeddingCall, PatternAttentionCall};
use crate::dtype::to_hip;
use crate::exec::select::{
    AttentionShape, ConvShape, Float8Shape, GemmLayout, LinearShape, PatchEmbeddingShape,
    PatternAttentionShape, Problem,
};

impl Call {
    /// Returns the problem for which a candidate is selected. `None` if the call has only one implementation.
    pub(crate) fn problem(&self) -> Option<Problem> {
        match self {
            Self::Linear(call) => Some(call.shape().into()),
            Self::Patches(call) | Self::Projection(call) => Some(call.shape().into()),
            Self::Attention(call) => Some(call.shape().into()),
            Self::PatternAttention(call) => Some(call.shape().into()),
            Self::Conv(call) => Some(call.shape().into()),
            Self::Kernel(_)
            | Self::Gemm { .. }
            | Self::CopyRows(_)
            | Self::AllReduce(_)
            | Self::Collective(_)
            | Self::AwaitCollective(_)
            | Self::RankPart(_)
            | Self::Zero { .. }
            | Self::Custom(_)
            | Self::Generated(_) => None,
        }
    }
}

impl LinearCall {
    pub(crate) fn shape(&self) -> LinearShape {
        let float8 = self.float8.map(|float8| Float8Shape {
            activations: self.gemm.wide,
            result: float8.out.is_some(),
            rows: float8.rows,
        });
        LinearShape {
            m: self.gemm.m,
            n: self.gemm.n,
            k: self.gemm.k,
            layout: match (self.gemm.a.transposed, self.gemm.b.transposed) {
                (true, _) => GemmLayout::Tn,
                (false, false) => GemmLayout::Nn,
                (false, true) => GemmLayout::Nt,
            },
            dtype: self.gemm.inputs,
            left: self.gemm.left,
            float8,
            int8: self.int8.map(|_| self.gemm.wide),
            sparse: self.sparse.is_some(),
            bias: !self.bias.is_null(),
            activation: self.activation,
            residual: !self.residual.is_null(),
        }
    }
}

impl AttentionCall {
    pub(crate) fn shape(&self) -> AttentionShape {
        AttentionShape {
            images: self.images,
            heads: self.spec.heads,
            tokens: self.operands[0].tokens,
            head_dim: self.spec.head_dim,
            dtype: to_hip(self.dtype),
        }
    }
}

impl ConvCall {
    pub(crate) fn shape(&self) -> ConvShape {
        let windows = &self.windows;
        let pair = |pair: [u32; 2]| pair.map(|extent| extent as usize);
        let before = pair(windows.before);
        ConvShape {
            images: windows.images as usize,
            size: pair([windows.height, windows.width]),
            channels: windows.channels as usize,
            features: self.features,
            kernel: pair(windows.kernel),
            stride: pair(windows.stride),
            dilation: pair(windows.dilation),
            padding: [0, 1].map(|axis| [before[axis], self.after[axis]]),
            groups: self.groups,
            dtype: to_hip(self.dtype),
            bias: !self.bias.is_null(),
            activation: self.activation,
            residual: !self.residual.is_null(),
        }
    }
}

impl PatternAttentionCall {
    pub(crate) fn shape(&self) -> PatternAttentionShape {
        let attention = &self.arguments.attention;
        PatternAttentionShape {
            pattern: self.pattern(),
            images: attention.images as usize,
            heads: attention.heads as usize,
            queries: attention.queries as usize,
            keys: attention.keys as usize,
            head_dim: attention.head_dim as usize,
            dtype: to_hip(self.dtype),
        }
    }
}

impl PatchEmbeddingCall {
    pub(crate) fn shape(&self) -> PatchEmbeddingShape {
        let Self { extract, linear } = self;
        PatchEmbeddingShape {
            images: extract.images as usize,
            height: extract.height as usize,
            width: extract.width as usize,
            patch: [extract.patch_height as usize, extract.patch_width as usize],
            n: linear.gemm.n,
            dtype: linear.gemm.inputs,
            bias: !linear.bias.is_null(),
        }
    }
}
