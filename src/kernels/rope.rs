//! `rope`: rotates pairs of channels of queries and keys, in place.

use hipvit_graph::op::{AttentionOperands, Op};

use super::Unit;
use super::attention::lower::fused;
use super::bindings::RopeArgs;
use super::call::CopyRows;
use super::lower::{Call, Lower, Lowering};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};
use crate::graph::plan::{Operand, Plan, Step};
use crate::ops::{Rope, RopePairs};

impl RopeArgs {
    /// Creates the arguments for `x` `[images, tokens, channels]` and `table` `[1, places, table_channels]`, the table of the last `places`
    /// tokens.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits, or the table has more tokens than `x`.
    pub fn new(
        [x, table]: [DeviceAddress; 2],
        [images, tokens, channels]: [usize; 3],
        [places, table_channels]: [usize; 2],
        spec: &Rope,
    ) -> Result<Self, KernelError> {
        let first = tokens.checked_sub(places).filter(|_| places > 0);
        let first = first.ok_or_else(|| format!("has a table of {places} tokens for {tokens}"))?;
        Ok(Self {
            x,
            table,
            images: extent(images)?,
            tokens: extent(tokens)?,
            first: extent(first)?,
            channels: extent(channels)?,
            heads: extent(spec.rotated * spec.heads)?,
            head_dim: extent(spec.head_dim)?,
            table_heads: extent(table_channels / spec.head_dim.max(1))?,
            halves: (spec.pairs == RopePairs::Halves).into(),
        })
    }
}

// SAFETY: see hip/rope.hip. Threads beyond the last image return.
unsafe impl KernelArguments for RopeArgs {
    const FILE: &'static str = "rope";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let width = u64::from(self.heads) * u64::from(self.head_dim);
        if self.table_heads == 0 || width == 0 || width > self.channels.into() {
            return Err(format!(
                "rotates {} heads of {} channels in tokens of {}",
                self.heads, self.head_dim, self.channels
            )
            .into());
        }
        let rows = [self.tokens - self.first, self.heads];
        let rows = rows
            .iter()
            .fold(u64::from(self.images), |n, &m| n.saturating_mul(m.into()));
        target.elementwise(rows, self.head_dim / 2)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let table = [self.tokens - self.first, self.table_heads, self.head_dim];
        visit(Access::read("table", self.table, bytes(element, &table)));
        let x = [self.images, self.tokens, self.channels];
        visit(Access::write("x", self.x, bytes(element, &x)));
    }
}

impl Lower for Rope {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("rope"))
    }

    /// Rotates in place, unless the only reader is an attention that rotates. Steps decide this, not a pass over the graph: for few
    /// queries, and before MIOpen's attention, a separate kernel rotates in place after all, as the plan says.
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let result = step.plan.buffer(step.step.output());
        let reader = step.plan.steps().get(result.last_step);
        if let Some((rotated, _)) = reader.and_then(|reader| rotation(step.plan, reader))
            && rotated.node == step.step.node
        {
            return Ok(Vec::new());
        }
        let mut calls = Vec::new();
        let from = step.address(0)?;
        if from != step.out {
            let [images, tokens, channels] = step.token_extents()?;
            let bytes = channels * step.element();
            calls.push(Call::CopyRows(CopyRows {
                from,
                from_stride: bytes,
                to: step.out,
                to_stride: bytes,
                bytes,
                rows: images * tokens,
            }));
        }
        calls.push(step.rope_arguments(self)?.into());
        Ok(calls)
    }
}

/// Returns the rotation that step `attention` computes, if any. None does in a training step: the backward pass reads the rounded result
/// of the rotation, so the forward pass must too.
pub(crate) fn rotation<'a>(plan: &'a Plan, attention: &Step) -> Option<(&'a Step, &'a Rope)> {
    let Op::Attention(spec) = &plan.node(attention).op else {
        return None;
    };
    if !plan.updates().is_empty() {
        return None;
    }
    let (operand, rotated) = match spec.operands {
        AttentionOperands::PackedQkv => (0, 2),
        AttentionOperands::PackedKv => (1, 1),
        AttentionOperands::Separate => return None,
    };
    let &Operand::Buffer(id) = attention.inputs.get(operand)? else {
        return None;
    };
    let step = plan.steps().get(plan.buffer(id).first_step)?;
    let Op::Rope(rope) = &plan.node(step).op else {
        return None;
    };
    let takes = fused(plan, spec)
        && plan.graph().optimizations().fusion
        && !spec.bias
        && spec.first_key == 0
        && (rope.heads, rope.head_dim, rope.rotated) == (spec.heads, spec.head_dim, rotated);
    let between = plan.steps().get(step.node + 1..attention.node)?;
    let read = |step: &Step| step.inputs.contains(&Operand::Buffer(id));
    let alone = plan.buffer(id).last_step == attention.node
        && !between.iter().any(read)
        && plan.outputs().iter().all(|&(_, _, output)| output != id);
    (takes && alone && step.in_place == Some(0)).then_some((step, rope))
}

impl Lowering<'_> {
    fn token_extents(&self) -> Result<[usize; 3], KernelError> {
        match *self.shape {
            [images, tokens, channels] => Ok([images, tokens, channels]),
            ref shape => Err(format!("rotates {shape:?}, which are no tokens").into()),
        }
    }

    /// Returns the arguments that rotate the result in place.
    fn rope_arguments(&self, spec: &Rope) -> Result<RopeArgs, KernelError> {
        let &[_, places, table_channels] = self.shape_of(1)? else {
            return Err("takes tokens and a table".into());
        };
        let addresses = [self.out, self.address(1)?];
        RopeArgs::new(addresses, self.token_extents()?, [places, table_channels], spec)
    }

    /// Returns the rotation that this attention step computes, if any.
    pub(super) fn rotation(&self) -> Result<Option<RopeArgs>, KernelError> {
        match rotation(self.plan, self.step) {
            Some((step, spec)) => {
                let rope = Lowering::new(self.plan, step, self.addresses);
                rope.rope_arguments(spec).map(Some)
            }
            None => Ok(None),
        }
    }
}
