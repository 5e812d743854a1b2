//! Lowering of the derivative of attention. If the forward pass has not saved its results, its kernel computes them again.

use hipvit_graph::op::{Attention, AttentionBackward, Op};

use super::unit;
use crate::graph::Graph;
use crate::graph::plan::{ALIGNMENT, Operand, Plan, Step};
use crate::hip::DeviceAddress;
use crate::kernels::attention::lower::from_first_key;
use crate::kernels::attention::{Variant, is_fused, unit as attention_unit, visibility};
use crate::kernels::bindings::{
    AttentionArgs, AttentionBackwardBiasArgs, AttentionBackwardKvArgs, AttentionBackwardOperands,
    AttentionBackwardQArgs, AttentionBackwardRowsArgs, AttentionBackwardSumArgs,
};
use crate::kernels::call::Call;
use crate::kernels::lower::{Lower, Lowering, shape_of};
use crate::kernels::{KernelError, Unit, extent};
use crate::tensor::DType;

/// Returns the units that derivatives of attention need besides [`Lower::unit`]: the sums of rows, and the forward pass if it has not saved
/// its results.
pub(crate) fn attention_backward_units(graph: &Graph) -> impl Iterator<Item = Unit> {
    graph
        .nodes()
        .iter()
        .flat_map(|node| match &node.op {
            Op::AttentionBackward(op) => {
                let forward = attention_unit(op.0.head_dim, Variant::Statistics).filter(|_| !op.0.statistics);
                [Some(Unit::of("attention_backward_rows")), forward]
            }
            Op::PatternAttentionBackward(_) => [Some(Unit::of("attention_backward_rows")), None],
            _ => [None, None],
        })
        .flatten()
}

/// Extents that the operands determine.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Extents {
    pub(in crate::kernels) images: usize,
    pub(in crate::kernels) queries: usize,
    pub(in crate::kernels) keys: usize,
    /// True if all images share the queries of one.
    pub(in crate::kernels) shares_queries: bool,
}

impl Extents {
    /// Returns the extents for the shapes of queries and keys.
    pub(in crate::kernels) fn new(q: &[usize], k: &[usize]) -> Self {
        let first = |shape: &[usize]| shape.first().copied().unwrap_or(1);
        Self {
            images: first(k),
            queries: if q.len() == 3 { q[1] } else { 1 },
            keys: k.get(1).copied().unwrap_or(1),
            shares_queries: first(q) == 1 && first(k) > 1,
        }
    }

    /// Returns the number of images that are summed up at once for the gradient of a bias.
    pub(in crate::kernels) fn chunk(&self, heads: usize) -> usize {
        AttentionBackwardBiasArgs::chunk([self.images, heads, self.queries, self.keys])
    }
}

/// Memory of a step outside the arena: offsets of its parts in bytes.
struct Scratch {
    /// f32 `[images, heads, queries, 2]`.
    rows: usize,
    /// f32 `[images, heads, queries, 3]`, if the forward pass has not saved its results.
    statistics: usize,
    /// `[images, queries, heads, head_dim]`, if the forward pass has not saved its results.
    o: usize,
    /// f32 `[images, queries, heads, head_dim]`, if the images share their queries.
    d_q: usize,
    /// f32 `[chunks, heads, queries, keys]`, if the gradient of the bias is summed up in chunks of images.
    d_bias: usize,
    bytes: usize,
}

impl Scratch {
    fn new(op: &AttentionBackward, extents: Extents, element: usize) -> Self {
        let heads = op.0.heads;
        let rows = extents.images * extents.queries * heads;
        let mut bytes = 0;
        let mut add = |is_needed: bool, part: usize| {
            let offset = bytes;
            if is_needed {
                bytes += part.next_multiple_of(ALIGNMENT);
            }
            offset
        };
        let (is_saved, float) = (op.0.statistics, size_of::<f32>());
        let chunks = extents.images.div_ceil(extents.chunk(heads));
        let scores = heads * extents.queries * extents.keys;
        let [rows, statistics, o, d_q, d_bias] = [
            add(true, 2 * rows * float),
            add(!is_saved, 3 * rows * float),
            add(!is_saved, rows * op.0.head_dim * element),
            add(extents.shares_queries, rows * op.0.head_dim * float),
            add(op.0.bias && chunks > 1, chunks * scores * float),
        ];
        Self {
            rows,
            statistics,
            o,
            d_q,
            d_bias,
            bytes,
        }
    }
}

impl Lower for AttentionBackward {
    fn unit(&self) -> Option<Unit> {
        unit(self.0.head_dim, self.0.bias)
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        if is_fused(&self.0) {
            step.attention_backward(self)
        } else {
            let reason = format!(
                "has heads of {} channels, for which there is no kernel. Use the CPU",
                self.0.head_dim
            );
            Err(KernelError::Unsupported(reason))
        }
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        match (step.inputs.first(), step.inputs.get(self.0.operands.keys())) {
            (Some(&q), Some(&k)) => {
                let extents = Extents::new(shape_of(plan, q), shape_of(plan, k));
                Scratch::new(self, extents, plan.dtype().size()).bytes
            }
            _ => 0,
        }
    }
}

impl Lowering<'_> {
    fn attention_backward(&self, op: &AttentionBackward) -> Result<Vec<Call>, KernelError> {
        let spec = &op.0;
        let extents = Extents::new(self.shape_of(0)?, self.shape_of(spec.operands.keys())?);
        let (images, queries) = (extents.images, extents.queries);
        let scratch = Scratch::new(op, extents, self.element());
        let at = |offset| self.addresses.scratch.offset(offset);
        let mut calls = Vec::new();
        let [o, statistics] = if let Some(saved) = op.saved_operand() {
            [self.address(saved)?, self.saved_statistics(saved + 1)?]
        } else {
            let results = [at(scratch.o), at(scratch.statistics)];
            calls.push(self.forward_again(op, images, results)?);
            results
        };
        let dy = self.address(self.step.inputs.len().saturating_sub(1))?;
        let rows = at(scratch.rows);
        let of_rows = [images, queries, spec.heads, spec.head_dim];
        calls.push(AttentionBackwardRowsArgs::new([o, dy, statistics, rows], of_rows, 3)?.into());

        let operands = self.backward_operands(spec, images, [dy, rows])?;
        let [dq, dk, dv] = self.gradients(spec)?;
        let partial = if extents.shares_queries {
            at(scratch.d_q)
        } else {
            DeviceAddress::NULL
        };
        calls.push(
            AttentionBackwardQArgs {
                operands,
                dq,
                partial,
            }
            .into(),
        );
        if extents.shares_queries {
            let elements = queries * spec.heads * spec.head_dim;
            calls.push(AttentionBackwardSumArgs::new([partial, dq], [images, elements])?.into());
        }
        calls.push(AttentionBackwardKvArgs { operands, dk, dv }.into());
        if let Some(index) = spec.bias_operand() {
            let addresses = [self.result(index)?, at(scratch.d_bias)];
            calls.extend(gradient_of_bias(operands, extents, addresses)?);
        }
        Ok(calls)
    }

    /// Returns the address of the statistics that the forward pass saved.
    pub(in crate::kernels) fn saved_statistics(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        match self.operand(index)? {
            Operand::Buffer(id) if self.plan.buffer(id).dtype != DType::F32 => {
                Err("its statistics are not f32".into())
            }
            _ => self.address(index),
        }
    }

    /// Returns the forward pass, with its result and statistics at these addresses.
    fn forward_again(
        &self,
        op: &AttentionBackward,
        images: usize,
        [o, statistics]: [DeviceAddress; 2],
    ) -> Result<Call, KernelError> {
        let spec = &op.0;
        let [q, k, v] = spec.places().map(|(index, channel)| self.heads(index, channel));
        let [k, v] = [k, v].map(|all| from_first_key(spec, all?, self.element()));
        let (q, k, v) = (q?, k?, v?);
        let out = self.result_of(spec, &q, o);
        let visible = visibility(self.key_mask(spec)?, 0, None, spec.causal.then_some(0));
        let arguments = AttentionArgs::new(spec, images, [q, k, v, out], visible)?;
        Ok(arguments.with_statistics(self.bias(spec)?, statistics)?.into())
    }

    /// Returns the addresses of the gradients of queries, keys and values.
    pub(in crate::kernels) fn gradients(&self, spec: &Attention) -> Result<[DeviceAddress; 3], KernelError> {
        let [q, k, v] = spec.places().map(|(index, channel)| {
            self.result(index)
                .map(|address| address.offset(channel * self.element()))
        });
        Ok([q?, k?, v?])
    }

    pub(in crate::kernels) fn backward_operands(
        &self,
        spec: &Attention,
        images: usize,
        [dy, rows]: [DeviceAddress; 2],
    ) -> Result<AttentionBackwardOperands, KernelError> {
        let [q, k, v] = spec.places().map(|(index, channel)| self.heads(index, channel));
        let (q, k, v) = (q?, k?, v?);
        let operands = [q, k, v, self.result_of(spec, &q, dy)];
        let visible = visibility(self.key_mask(spec)?, 0, None, spec.causal.then_some(0));
        let operands = AttentionBackwardOperands::new(spec, images, operands, rows, visible)?;
        let Some(index) = spec.bias_operand() else {
            return Ok(operands);
        };
        Ok(AttentionBackwardOperands {
            bias: self.address(index)?,
            bias_head: (q.tokens * k.tokens) as u64,
            bias_query: extent(k.tokens)?,
            ..operands
        })
    }
}

/// Returns the calls that write the gradient of the bias to `dbias`, by way of `partial` if there are several chunks of images.
fn gradient_of_bias(
    operands: AttentionBackwardOperands,
    extents: Extents,
    [dbias, partial]: [DeviceAddress; 2],
) -> Result<Vec<Call>, KernelError> {
    let heads = operands.heads as usize;
    let chunk = extents.chunk(heads);
    let chunks = extents.images.div_ceil(chunk);
    let of_bias = AttentionBackwardBiasArgs {
        operands,
        dbias,
        partial: if chunks > 1 { partial } else { DeviceAddress::NULL },
        chunk: extent(chunk)?,
        reserved: 0,
    };
    let mut calls = vec![of_bias.into()];
    if chunks > 1 {
        let scores = heads * extents.queries * extents.keys;
        calls.push(AttentionBackwardSumArgs::new([partial, dbias], [chunks, scores])?.into());
    }
    Ok(calls)
}
