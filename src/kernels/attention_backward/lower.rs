//! Lowering of the derivative of attention. If the forward pass has not saved its results, its kernel computes them again.

use hipvit_graph::op::AttentionBackward;

use super::unit;
use crate::graph::plan::{ALIGNMENT, Operand, Plan, Step};
use crate::hip::DeviceAddress;
use crate::kernels::attention::lower::from_first_key;
use crate::kernels::attention::{Variant, is_fused, unit as attention_unit, visibility};
use crate::kernels::bindings::{
    AttentionArgs, AttentionBackwardBiasArgs, AttentionBackwardKvArgs, AttentionBackwardOperands,
    AttentionBackwardQArgs, AttentionBackwardRowsArgs, AttentionBackwardSumArgs,
};
use crate::kernels::lower::{Call, Lower, Lowering, shape_of};
use crate::kernels::{KernelError, Unit, extent};
use crate::tensor::DType;

/// Returns the units that the derivative needs besides [`Lower::unit`].
pub(crate) fn more_units(op: &AttentionBackward) -> impl Iterator<Item = Unit> + use<> {
    let forward = attention_unit(op.0.head_dim, Variant::Statistics).filter(|_| !op.0.statistics);
    [Unit::of("attention_backward_rows")].into_iter().chain(forward)
}

/// Extents that the operands determine.
#[derive(Clone, Copy)]
struct Extents {
    images: usize,
    queries: usize,
    /// True if all images share the queries of one.
    shares_queries: bool,
}

impl Extents {
    /// Returns the extents for the shapes of queries and keys.
    fn new(q: &[usize], k: &[usize]) -> Self {
        let first = |shape: &[usize]| shape.first().copied().unwrap_or(1);
        Self {
            images: first(k),
            queries: if q.len() == 3 { q[1] } else { 1 },
            shares_queries: first(q) == 1 && first(k) > 1,
        }
    }
}

/// Memory of a step outside the arena: offsets of its parts.
struct Scratch {
    /// f32 `[images, heads, queries, 2]`.
    rows: usize,
    /// f32 `[images, heads, queries, 3]`, if the forward pass has not saved its results.
    statistics: usize,
    /// `[images, queries, heads, head_dim]`, if the forward pass has not saved its results.
    o: usize,
    /// f32 `[images, queries, heads, head_dim]`, if the images share their queries.
    partial: usize,
    bytes: usize,
}

impl Scratch {
    fn new(op: &AttentionBackward, extents: Extents, element: usize) -> Self {
        let rows = extents.images * extents.queries * op.0.heads;
        let mut bytes = 0;
        let mut add = |is_needed: bool, of_row: usize| {
            let offset = bytes;
            if is_needed {
                bytes += (rows * of_row).next_multiple_of(ALIGNMENT);
            }
            offset
        };
        let is_saved = op.0.statistics;
        let [rows, statistics, o, partial] = [
            add(true, 2 * size_of::<f32>()),
            add(!is_saved, 3 * size_of::<f32>()),
            add(!is_saved, op.0.head_dim * element),
            add(extents.shares_queries, op.0.head_dim * size_of::<f32>()),
        ];
        Self {
            rows,
            statistics,
            o,
            partial,
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
                "has heads of {} channels, for which there is no kernel: the CPU computes it",
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
        let Extents {
            images,
            queries,
            shares_queries,
        } = extents;
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
        let extents = [images, queries, spec.heads, spec.head_dim];
        calls.push(AttentionBackwardRowsArgs::new([o, dy, statistics, rows], extents)?.into());

        let operands = self.backward_operands(op, images, [dy, rows])?;
        let [dq, dk, dv] = spec.places().map(|(index, channel)| {
            self.result(index)
                .map(|address| address.offset(channel * self.element()))
        });
        let (dq, dk, dv) = (dq?, dk?, dv?);
        let partial = if shares_queries {
            at(scratch.partial)
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
        if shares_queries {
            let elements = queries * spec.heads * spec.head_dim;
            calls.push(AttentionBackwardSumArgs::new([partial, dq], [images, elements])?.into());
        }
        calls.push(AttentionBackwardKvArgs { operands, dk, dv }.into());
        if let Some(index) = spec.bias_operand() {
            let dbias = self.result(index)?;
            calls.push(AttentionBackwardBiasArgs { operands, dbias }.into());
        }
        Ok(calls)
    }

    /// Returns the address of the statistics that the forward pass saved.
    fn saved_statistics(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        match self.operand(index)? {
            Operand::Buffer(id) if self.plan.buffer(id).dtype != DType::F32 => {
                Err("takes statistics in f32".into())
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

    fn backward_operands(
        &self,
        op: &AttentionBackward,
        images: usize,
        [dy, rows]: [DeviceAddress; 2],
    ) -> Result<AttentionBackwardOperands, KernelError> {
        let spec = &op.0;
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
