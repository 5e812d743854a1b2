//! `loss_backward`: the derivative of each image's loss.

use hipvit_graph::op::LossBackward;

use super::bindings::{LOSS_THREADS, LossBackwardArgs};
use super::loss::{check, function};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for LossBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("loss_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [rows, classes] = step.matrix()?;
        one(LossBackwardArgs {
            logits: step.address(0)?,
            targets: step.address(1)?,
            gradient: step.address(2)?,
            out: step.out,
            rows: extent(rows)?,
            classes: extent(classes)?,
            kind: function(self.0),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/loss_backward.hip. A block takes a row, and exactly as many blocks are launched.
unsafe impl KernelArguments for LossBackwardArgs {
    const FILE: &'static str = "loss_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check(self.rows, self.classes)?;
        target.blocks(self.rows.into(), LOSS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = [self.rows, self.classes];
        visit(Access::read("logits", self.logits, bytes(element, &all)));
        visit(Access::read("targets", self.targets, bytes(single, &all)));
        visit(Access::read(
            "gradient",
            self.gradient,
            bytes(single, &[self.rows]),
        ));
        visit(Access::write("out", self.out, bytes(element, &all)));
    }
}
