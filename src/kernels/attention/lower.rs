//! Lowering of attention to the fused kernel. For unsupported heads, and on request, it becomes Q·Kᵀ, softmax and P·V; or MIOpen's
//! attention, as [selected](crate::exec::select).

use hipvit_graph::op::{Attention, Op};

use super::call::AttentionCall;
use super::{ScoreBias, Strided, Variant, is_fused, unit, visibility};
use crate::dtype::to_hip;
use crate::graph::Graph;
use crate::graph::plan::{ALIGNMENT, Operand, Plan, Step};
use crate::hip::{DeviceAddress, Gemm, Matrix};
use crate::kernels::bindings::{AddArgs, AttentionArgs, QuantizeArgs, SoftmaxArgs, Visibility};
use crate::kernels::lower::{Call, Lower, Lowering, one, shape_of};
use crate::kernels::{KernelCall, KernelError, Unit};

/// Returns true if the fused kernel computes it.
pub(crate) fn fused(plan: &Plan, spec: &Attention) -> bool {
    plan.graph().optimizations().fused_attention && is_fused(spec)
}

/// Returns the bytes of the scores of unfused attention.
pub(crate) fn score_bytes(plan: &Plan, step: &Step, spec: &Attention) -> usize {
    if fused(plan, spec) {
        return 0;
    }
    let output: usize = plan.buffer(step.output()).shape.iter().product();
    let queries = output / (spec.heads * spec.head_dim).max(1);
    let keys = step.inputs.get(spec.operands.keys());
    let keys = keys.map_or(1, |&keys| match shape_of(plan, keys) {
        [_, tokens, _] => *tokens,
        _ => 1,
    });
    spec.heads * queries * keys * plan.dtype().size()
}

/// Returns the units that attention needs besides [`Lower::unit`]: a softmax and a bias kernel for unfused attention, and the kernel with
/// rotation for rotated queries and keys.
pub(crate) fn attention_units(graph: &Graph) -> impl Iterator<Item = Unit> {
    let fuses = graph.optimizations().fused_attention;
    let unfused_bias = graph.nodes().iter().any(|node| match &node.op {
        Op::Attention(spec) => spec.bias && !(fuses && is_fused(spec)),
        _ => false,
    });
    let softmax = (!fuses).then(|| Unit::of("softmax"));
    let heads = graph.nodes().iter().filter_map(|node| match &node.op {
        Op::Rope(spec) => Some(spec.head_dim),
        _ => None,
    });
    let rotating = heads.filter_map(|head_dim| unit(head_dim, Variant::Rope));
    let rotating = rotating.filter(move |_| fuses);
    let unfused = softmax.into_iter().chain(unfused_bias.then(|| Unit::of("add")));
    unfused.chain(rotating)
}

/// Returns true if the step is attention by rocBLAS GEMMs.
pub(crate) fn attention_is_unfused(plan: &Plan, step: &Step) -> bool {
    matches!(&plan.node(step).op, Op::Attention(spec) if score_bytes(plan, step, spec) > 0)
}

impl AttentionCall {
    /// Returns the calls of builtin kernels.
    pub(crate) fn own(&self) -> Result<Vec<Call>, KernelError> {
        if is_fused(&self.spec) {
            one(fused_attention(self)?)
        } else {
            unfused_attention(self)
        }
    }
}

impl Lower for Attention {
    fn unit(&self) -> Option<Unit> {
        if self.statistics {
            return unit(self.head_dim, Variant::Statistics);
        }
        let variant = if self.bias { Variant::Bias } else { Variant::Plain };
        Some(unit(self.head_dim, variant).unwrap_or(Unit::of("softmax")))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        if self.statistics {
            step.attention_with_statistics(self)
        } else {
            step.attention_alone(self)
        }
    }

    /// Returns the bytes of unfused attention scores, and of the result in the dtype if the result is stored in FP8.
    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let scores = score_bytes(plan, step, self).next_multiple_of(ALIGNMENT);
        let result = plan.buffer(step.output());
        match result.float8() {
            Some(_) if scores > 0 => scores + result.shape.iter().product::<usize>() * plan.dtype().size(),
            _ => scores,
        }
    }
}

impl Lowering<'_> {
    fn attention_alone(&self, spec: &Attention) -> Result<Vec<Call>, KernelError> {
        let call = self.attention_call(spec, self.out)?;
        // Libraries do not support one query for all images, fewer queries than tokens, a mask or a bias.
        let queries = call.operands[0].tokens;
        let own_tokens = |of: &Strided| of.tokens == queries && (of.image != 0 || call.images == 1);
        let plain = !spec.causal && call.bias.is_none() && call.key_mask.is_null() && call.float8.is_none();
        let selects = self.plan.graph().optimizations().fused_attention && plain;
        if selects && call.operands.iter().all(own_tokens) {
            one(Call::Attention(call))
        } else if fused(self.plan, spec) {
            one(fused_attention(&call)?)
        } else {
            self.unfused_attention(call)
        }
    }

    /// Computes unfused attention. A separate kernel rounds a result in FP8.
    fn unfused_attention(&self, mut call: AttentionCall) -> Result<Vec<Call>, KernelError> {
        let Some(step) = call.float8 else {
            return unfused_attention(&call);
        };
        let scores = score_bytes(self.plan, self.step, &call.spec).next_multiple_of(ALIGNMENT);
        let wide = call.scratch.offset(scores);
        let out = std::mem::replace(&mut call.operands[3].address, wide);
        let mut calls = unfused_attention(&call)?;
        calls.push(QuantizeArgs::float8([wide, out], self.matrix()?, step)?.into());
        Ok(calls)
    }

    /// Computes attention and its statistics, in one launch if attention is fused.
    fn attention_with_statistics(&self, spec: &Attention) -> Result<Vec<Call>, KernelError> {
        if !is_fused(spec) {
            let reason = format!(
                "needs the fused attention kernel, which there is none of for heads of {} channels: the CPU computes it",
                spec.head_dim
            );
            return Err(KernelError::Unsupported(reason));
        }
        let statistics = self.result(1)?;
        if fused(self.plan, spec) {
            return one(with_statistics(
                &self.attention_call(spec, self.out)?,
                statistics,
            )?);
        }
        let mut calls = self.attention_alone(spec)?;
        calls.push(with_statistics(&self.attention_call(spec, DeviceAddress::NULL)?, statistics)?.into());
        Ok(calls)
    }

    fn attention_call(&self, spec: &Attention, out: DeviceAddress) -> Result<AttentionCall, KernelError> {
        let [q, k, v] = spec.places().map(|(index, channel)| self.heads(index, channel));
        let q = q?;
        let [k, v] = [k, v].map(|all| from_first_key(spec, all?, self.element()));
        let out = self.result_of(spec, &q, out);
        Ok(AttentionCall {
            spec: *spec,
            images: self.shape[0],
            dtype: self.plan.dtype(),
            operands: [q, k?, v?, out],
            bias: self.bias(spec)?,
            key_mask: self.key_mask(spec)?,
            rope: self.rotation()?,
            scratch: self.addresses.scratch,
            float8: self.float8(),
        })
    }

    pub(in crate::kernels) fn bias(&self, spec: &Attention) -> Result<Option<ScoreBias>, KernelError> {
        if !spec.bias {
            return Ok(None);
        }
        let index = spec.operands.count();
        let &[_, queries, keys] = self.shape_of(index)? else {
            return Err("its bias is not of heads, queries and keys".into());
        };
        Ok(Some(ScoreBias {
            address: self.address(index)?.offset(spec.first_key * self.element()),
            head: queries * keys,
            query: keys,
        }))
    }

    pub(in crate::kernels) fn key_mask(&self, spec: &Attention) -> Result<DeviceAddress, KernelError> {
        let Some(index) = spec.key_mask_operand() else {
            return Ok(DeviceAddress::NULL);
        };
        // A constant would have the plan's dtype.
        match self.operand(index)? {
            Operand::Buffer(_) => self.address(index),
            _ => Err("takes a key mask that is computed".into()),
        }
    }

    /// Returns queries, keys or values: the channels from `channel` on of each token of operand `index`.
    pub(in crate::kernels) fn heads(&self, index: usize, channel: usize) -> Result<Strided, KernelError> {
        let (images, tokens, channels) = match *self.shape_of(index)? {
            [b, n, channels] => (b, n, channels),
            [b, channels] => (b, 1, channels),
            ref shape => return Err(format!("an operand has shape {shape:?}, expected tokens").into()),
        };
        Ok(Strided {
            address: self.address(index)?.offset(channel * self.element()),
            tokens,
            image: if images == 1 { 0 } else { tokens * channels },
            token: channels,
        })
    }

    /// Returns the layout of the result at `address`, with as many tokens as queries.
    pub(in crate::kernels) fn result_of(
        &self,
        spec: &Attention,
        q: &Strided,
        address: DeviceAddress,
    ) -> Strided {
        let channels = spec.heads * spec.head_dim;
        Strided {
            address,
            tokens: q.tokens,
            image: q.tokens * channels,
            token: channels,
        }
    }
}

/// Returns keys or values from the first attended key on. `element` is the size of their elements in bytes.
pub(in crate::kernels) fn from_first_key(
    spec: &Attention,
    all: Strided,
    element: usize,
) -> Result<Strided, KernelError> {
    let left_out = spec.first_key * all.token * element;
    let tokens = all.tokens.checked_sub(spec.first_key);
    Ok(Strided {
        address: all.address.offset(left_out),
        tokens: tokens.ok_or_else(|| format!("has no key {}", spec.first_key))?,
        ..all
    })
}

/// Returns the keys that each query attends to.
fn visible(call: &AttentionCall) -> Visibility {
    visibility(call.key_mask, 0, None, call.spec.causal.then_some(0))
}

fn arguments(call: &AttentionCall) -> Result<AttentionArgs, KernelError> {
    let arguments = AttentionArgs::new(&call.spec, call.images, call.operands, visible(call))?;
    Ok(call.float8.map_or(arguments, |step| arguments.to_float8(step)))
}

fn fused_attention(call: &AttentionCall) -> Result<KernelCall, KernelError> {
    let arguments = arguments(call)?;
    Ok(match (call.bias, call.rope) {
        (Some(bias), _) => arguments.with_bias(bias)?.into(),
        (None, Some(rope)) => arguments.with_rope(rope).into(),
        (None, None) => arguments.into(),
    })
}

/// Returns fused attention with the statistics of its softmax at `address`.
fn with_statistics(call: &AttentionCall, address: DeviceAddress) -> Result<KernelCall, KernelError> {
    Ok(arguments(call)?.with_statistics(call.bias, address)?.into())
}

/// Returns one GEMM per head for all images, since only the heads are adjacent in memory. The GEMM scales the scores, so that f16 scores do
/// not overflow before. A bias is added between the GEMM and the softmax.
fn unfused_attention(call: &AttentionCall) -> Result<Vec<Call>, KernelError> {
    let &AttentionCall {
        spec,
        images,
        dtype,
        operands: [q, k, v, out],
        bias,
        scratch,
        ..
    } = call;
    let element = dtype.size();
    let (heads, head_dim) = (spec.heads, spec.head_dim);
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
        ..Gemm::new(queries, keys, head_dim, to_hip(dtype))
    };
    let pv = Gemm {
        batch: images,
        a: scores,
        b: matrix(v),
        c: matrix(out),
        ..Gemm::new(queries, head_dim, keys, to_hip(dtype))
    };
    let of_head = |head: usize| {
        (
            head * head_dim * element,
            scratch.offset(head * queries * keys * element),
        )
    };
    let mut calls = Vec::with_capacity(2 * heads + 2);
    for (channel, c) in (0..heads).map(of_head) {
        let (a, b) = (q.address.offset(channel), k.address.offset(channel));
        calls.push(Call::Gemm { gemm: qk, a, b, c });
    }
    if let Some(bias) = bias {
        if (bias.query, bias.head) != (keys, queries * keys) {
            let reason = "unfused attention takes no bias where keys are left out";
            return Err(KernelError::unsupported(reason));
        }
        let rows = heads * queries;
        let y = Some((bias.address, rows));
        let gamma = DeviceAddress::NULL;
        calls.push(AddArgs::new([scratch, scratch], [images * rows, keys], 1.0, gamma, y)?.into());
    }
    let extents = [images, heads, queries, keys];
    calls.push(SoftmaxArgs::new([scratch, scratch], extents, visible(call), 1.0)?.into());
    for (channel, a) in (0..heads).map(of_head) {
        let (b, c) = (v.address.offset(channel), out.address.offset(channel));
        calls.push(Call::Gemm { gemm: pv, a, b, c });
    }
    Ok(calls)
}
