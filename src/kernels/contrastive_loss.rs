//! `contrastive_loss`: the loss of each pair of an image and a text.

use hipvit_graph::op::{ContrastiveKind, ContrastiveLoss};

use super::bindings::{CONTRASTIVE_THREADS, ContrastiveLossArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};

/// Returns the address of the bias: operand 2, or null without one.
pub(super) fn bias(kind: ContrastiveKind, step: &Lowering<'_>) -> Result<DeviceAddress, KernelError> {
    if kind.has_bias() {
        step.address(2)
    } else {
        Ok(DeviceAddress::NULL)
    }
}

impl Lower for ContrastiveLoss {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("contrastive_loss"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [pairs, _] = step.matrix()?;
        one(ContrastiveLossArgs {
            similarity: step.address(0)?,
            log_scale: step.address(1)?,
            bias: bias(self.0, step)?,
            out: step.out,
            pairs: extent(pairs)?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/contrastive_loss.hip. A block takes a pair, and exactly as many blocks are launched.
unsafe impl KernelArguments for ContrastiveLossArgs {
    const FILE: &'static str = "contrastive_loss";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        plan(self.pairs, target)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let matrix = bytes(element, &[self.pairs, self.pairs]);
        visit(Access::read("similarity", self.similarity, matrix));
        visit(Access::read("log_scale", self.log_scale, single));
        visit(optional(Access::read("bias", self.bias, single)));
        visit(Access::write("out", self.out, bytes(single, &[self.pairs])));
    }
}

/// Plans a block for each pair.
pub(super) fn plan(pairs: u32, target: &Target) -> Result<Launch, KernelError> {
    if pairs == 0 {
        return Err("there are no pairs".into());
    }
    target.blocks(pairs.into(), CONTRASTIVE_THREADS)
}
