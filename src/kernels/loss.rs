//! `loss`: the loss of each image.

use hipvit_graph::op::{Loss, LossKind};

use super::bindings::{LOSS_THREADS, LossArgs, LossFunction};
use super::launch::check_channels;
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

/// Returns the function as the kernels know it.
pub(super) fn function(kind: LossKind) -> u32 {
    let function = match kind {
        LossKind::CrossEntropy => LossFunction::CrossEntropy,
        LossKind::BinaryCrossEntropy => LossFunction::BinaryCrossEntropy,
        LossKind::MeanSquaredError => LossFunction::MeanSquaredError,
    };
    function as u32
}

impl Lower for Loss {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("loss"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let logits = step.shape_of(0)?;
        one(LossArgs {
            logits: step.address(0)?,
            targets: step.address(1)?,
            out: step.out,
            rows: extent(rows(logits)?)?,
            classes: extent(logits.last().copied().unwrap_or(0))?,
            kind: function(self.0),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/loss.hip. A block takes a row, and exactly as many blocks are launched.
unsafe impl KernelArguments for LossArgs {
    const FILE: &'static str = "loss";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check(self.rows, self.classes)?;
        target.blocks(self.rows.into(), LOSS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = [self.rows, self.classes];
        visit(Access::read("logits", self.logits, bytes(element, &all)));
        visit(Access::read("targets", self.targets, bytes(single, &all)));
        visit(Access::write("out", self.out, bytes(single, &[self.rows])));
    }
}

/// Checks that there are rows and classes.
pub(super) fn check(rows: u32, classes: u32) -> Result<(), KernelError> {
    check_channels(classes)?;
    if rows == 0 {
        return Err("there are no images".into());
    }
    Ok(())
}
