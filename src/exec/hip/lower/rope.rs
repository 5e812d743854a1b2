//! Rotary position embedding, which is computed in place; or by the attention that alone reads the result, which then reads
//! it as it was. Steps decide that, not a pass of the graph: for few queries, and before MIOpen's attention, it is a kernel of
//! its own after all, in place as the plan has it.

use super::{Call, CopyRows, Lowering, attention};
use crate::graph::plan::{Operand, Plan, Step};
use crate::kernels::RopeArgs;
use crate::ops::{AttentionOperands, Op, Rope};

/// The rotation that step `attention` computes, if it does.
pub(in crate::exec) fn rotation<'a>(plan: &'a Plan, attention: &Step) -> Option<(&'a Step, &'a Rope)> {
    let Op::Attention(spec) = &plan.node(attention).op else {
        return None;
    };
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
    let takes = attention::fused(plan, spec)
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
    pub(super) fn rope(&self, spec: &Rope) -> Result<Vec<Call>, String> {
        let reader = self
            .plan
            .steps()
            .get(self.plan.buffer(self.step.output()).last_step);
        if let Some((step, _)) = reader.and_then(|reader| rotation(self.plan, reader))
            && step.node == self.step.node
        {
            return Ok(Vec::new());
        }
        let mut calls = Vec::new();
        let from = self.address(0)?;
        if from != self.out {
            let [images, tokens, channels] = self.token_extents()?;
            let bytes = channels * self.element();
            calls.push(Call::CopyRows(CopyRows {
                from,
                from_stride: bytes,
                to: self.out,
                to_stride: bytes,
                bytes,
                rows: images * tokens,
            }));
        }
        calls.push(self.rope_arguments(spec)?.into());
        Ok(calls)
    }

    fn token_extents(&self) -> Result<[usize; 3], String> {
        match *self.shape {
            [images, tokens, channels] => Ok([images, tokens, channels]),
            ref shape => Err(format!("rotates {shape:?}, which are no tokens")),
        }
    }

    /// What rotates the result in place.
    fn rope_arguments(&self, spec: &Rope) -> Result<RopeArgs, String> {
        let &[_, places, table_channels] = self.shape_of(1)? else {
            return Err("takes tokens and a table".into());
        };
        let addresses = [self.out, self.address(1)?];
        RopeArgs::new(addresses, self.token_extents()?, [places, table_channels], spec)
    }

    /// The rotation that this step, attention, computes, if it does.
    pub(super) fn rotation(&self) -> Result<Option<RopeArgs>, String> {
        match rotation(self.plan, self.step) {
            Some((step, spec)) => {
                let rope = Lowering::new(self.plan, step, self.addresses);
                rope.rope_arguments(spec).map(Some)
            }
            None => Ok(None),
        }
    }
}
