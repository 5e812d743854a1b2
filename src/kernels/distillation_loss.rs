//! `distillation_loss`: the loss of each image that learns from a teacher.

use hipvit_graph::op::{DistillationKind, DistillationLoss};

use super::bindings::{DistillationLossArgs, LOSS_THREADS};
use super::loss::{check, function};
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

/// Returns 1 if only the teacher's class counts.
pub(super) fn is_hard(kind: DistillationKind) -> u32 {
    (kind == DistillationKind::Hard).into()
}

impl Lower for DistillationLoss {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("distillation_loss"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let logits = step.shape_of(0)?;
        one(DistillationLossArgs {
            logits: step.address(0)?,
            distilled: step.address(1)?,
            targets: step.address(2)?,
            teacher: step.address(3)?,
            out: step.out,
            rows: extent(rows(logits)?)?,
            classes: extent(logits.last().copied().unwrap_or(0))?,
            base: function(self.base),
            is_hard: is_hard(self.kind),
            alpha: self.alpha,
            temperature: self.temperature,
        })
    }
}

// SAFETY: see hip/distillation_loss.hip. A block takes a row, and exactly as many blocks are launched.
unsafe impl KernelArguments for DistillationLossArgs {
    const FILE: &'static str = "distillation_loss";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check(self.rows, self.classes)?;
        target.blocks(self.rows.into(), LOSS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = [self.rows, self.classes];
        visit(Access::read("logits", self.logits, bytes(element, &all)));
        visit(Access::read("distilled", self.distilled, bytes(element, &all)));
        visit(Access::read("targets", self.targets, bytes(single, &all)));
        visit(Access::read("teacher", self.teacher, bytes(single, &all)));
        visit(Access::write("out", self.out, bytes(single, &[self.rows])));
    }
}
