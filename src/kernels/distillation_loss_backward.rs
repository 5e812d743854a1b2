//! `distillation_loss_backward`: the derivatives of the losses of images that learn from a teacher.

use hipvit_graph::op::DistillationLossBackward;

use super::bindings::{DistillationLossBackwardArgs, LOSS_THREADS};
use super::distillation_loss::is_hard;
use super::loss::{check, function};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for DistillationLossBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("distillation_loss_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [rows, classes] = step.matrix()?;
        one(DistillationLossBackwardArgs {
            logits: step.address(0)?,
            distilled: step.address(1)?,
            targets: step.address(2)?,
            teacher: step.address(3)?,
            gradient: step.address(4)?,
            d_logits: step.result(0)?,
            d_distilled: step.result(1)?,
            rows: extent(rows)?,
            classes: extent(classes)?,
            base: function(self.0.base),
            is_hard: is_hard(self.0.kind),
            alpha: self.0.alpha,
            temperature: self.0.temperature,
        })
    }
}

// SAFETY: see hip/distillation_loss_backward.hip. A block takes a row, and exactly as many blocks are launched.
unsafe impl KernelArguments for DistillationLossBackwardArgs {
    const FILE: &'static str = "distillation_loss_backward";

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
        let gradient = bytes(single, &[self.rows]);
        visit(Access::read("gradient", self.gradient, gradient));
        visit(Access::write("d_logits", self.d_logits, bytes(element, &all)));
        visit(Access::write(
            "d_distilled",
            self.d_distilled,
            bytes(element, &all),
        ));
    }
}
