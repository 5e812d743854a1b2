//! Attention: the fused kernel; or for heads that it does not take, and on request, Q·Kᵀ, softmax and P·V.

use super::{Call, Lowering, one, shape_of};
use crate::graph::plan::{Plan, Step};
use crate::hip::{Gemm, Matrix};
use crate::kernels::{AttentionArgs, KernelCall, SoftmaxArgs, Strided, is_fused, visibility};
use crate::ops::{Attention, AttentionOperands};

/// Whether the fused kernel computes it.
fn fused(plan: &Plan, spec: &Attention) -> bool {
    plan.graph().optimizations().fused_attention && is_fused(spec)
}

/// The memory that the scores of unfused attention take.
pub(super) fn score_bytes(plan: &Plan, step: &Step, spec: &Attention) -> usize {
    if fused(plan, spec) {
        return 0;
    }
    let output: usize = plan.buffer(step.output).shape.iter().product();
    let queries = output / (spec.heads * spec.head_dim).max(1);
    let keys = match spec.operands {
        AttentionOperands::PackedQkv => step.inputs.first(),
        AttentionOperands::PackedKv | AttentionOperands::Separate => step.inputs.get(1),
    };
    let keys = keys.map_or(1, |&keys| match shape_of(plan, keys) {
        [_, tokens, _] => *tokens,
        _ => 1,
    });
    spec.heads * queries * keys * plan.dtype().size()
}

impl Call {
    /// The same on a device of `compute_units`: fused attention that would leave most of them idle becomes the kernel for few
    /// queries. `element` is the size of an element.
    pub(in crate::exec) fn on_device(self, element: usize, compute_units: u32) -> Self {
        match self {
            Self::Kernel(KernelCall::Attention(arguments)) => match arguments.split(element, compute_units) {
                Some(split) => Self::from(split),
                None => self,
            },
            _ => self,
        }
    }
}

impl Lowering<'_> {
    pub(super) fn attention(&self, spec: &Attention) -> Result<Vec<Call>, String> {
        let channels = spec.heads * spec.head_dim;
        let [q, k, v] = match spec.operands {
            AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
            AttentionOperands::PackedQkv => [(0, 0), (0, channels), (0, 2 * channels)],
            AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, channels)],
        };
        let q = self.heads(q.0, q.1)?;
        let out = Strided {
            address: self.out,
            tokens: q.tokens,
            image: q.tokens * channels,
            token: channels,
        };
        let operands = [q, self.heads(k.0, k.1)?, self.heads(v.0, v.1)?, out];
        match fused(self.plan, spec) {
            true => {
                let visible = visibility(0, 0, None, None);
                one(AttentionArgs::new(spec, self.shape[0], operands, visible)?)
            }
            false => self.unfused_attention(spec, operands),
        }
    }

    /// Queries, keys or values: the channels from `channel` on of each token of an operand.
    fn heads(&self, index: usize, channel: usize) -> Result<Strided, String> {
        let (images, tokens, channels) = match *self.shape_of(index)? {
            [b, n, channels] => (b, n, channels),
            [b, channels] => (b, 1, channels),
            ref shape => return Err(format!("an operand has shape {shape:?}, expected tokens")),
        };
        Ok(Strided {
            address: self.address(index)? + (channel * self.element()) as u64,
            tokens,
            image: if images == 1 { 0 } else { tokens * channels },
            token: channels,
        })
    }

    /// One GEMM per head takes all images: their results are apart in memory, the heads' side by side. The GEMM scales
    /// the scores, so that those of f16 do not overflow before.
    fn unfused_attention(&self, spec: &Attention, [q, k, v, out]: [Strided; 4]) -> Result<Vec<Call>, String> {
        let (element, dtype) = (self.element() as u64, self.plan.dtype());
        let (images, heads, head_dim) = (self.shape[0], spec.heads, spec.head_dim);
        let (queries, keys) = (q.tokens, k.tokens);
        let matrix = |of: Strided| Matrix::rows(of.token).every(of.image);
        let scores = Matrix::rows(keys).every(heads * queries * keys);
        let qk = Gemm {
            batch: images,
            a: matrix(q),
            b: Matrix {
                transposed: true,
                ..matrix(k)
            },
            c: scores,
            alpha: spec.scale,
            ..Gemm::new(queries, keys, head_dim, dtype)
        };
        let pv = Gemm {
            batch: images,
            a: scores,
            b: matrix(v),
            c: matrix(out),
            ..Gemm::new(queries, head_dim, keys, dtype)
        };
        let scratch = self.addresses.scratch;
        let of_head = |head: u64| {
            (
                head * head_dim as u64 * element,
                scratch + head * (queries * keys) as u64 * element,
            )
        };
        let mut calls = Vec::with_capacity(2 * heads + 1);
        for (channel, c) in (0..heads as u64).map(of_head) {
            let (a, b) = (q.address + channel, k.address + channel);
            calls.push(Call::Gemm { gemm: qk, a, b, c });
        }
        let extents = [images, heads, queries, keys];
        let visible = visibility(0, 0, None, None);
        calls.push(SoftmaxArgs::new([scratch, scratch], extents, visible, 1.0)?.into());
        for (channel, a) in (0..heads as u64).map(of_head) {
            let (b, c) = (v.address + channel, out.address + channel);
            calls.push(Call::Gemm { gemm: pv, a, b, c });
        }
        Ok(calls)
    }
}
