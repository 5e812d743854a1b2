//! `reshape` and `detach`: no call if the result has the operand's memory, else a copy.

use hipvit_graph::op::{Detach, Reshape};
use hipvit_graph::strided::View;

use super::KernelError;
use super::lower::{Call, Lower, Lowering};

impl Lower for Reshape {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        copy(step)
    }
}

impl Lower for Detach {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        copy(step)
    }
}

/// Returns the calls that copy the elements of the operand, unless the result has its memory.
fn copy(step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
    if step.address(0)? == step.out {
        return Ok(Vec::new());
    }
    step.copy_view(&View::of(step.shape))
}
