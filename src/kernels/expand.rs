//! Repetition along axes, as a copy of a view.

use hipvit_graph::op::Expand;
use hipvit_graph::strided::View;

use super::lower::{Call, Lower, Lowering};
use super::{KernelError, Unit};

impl Lower for Expand {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("strided_copy"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        step.copy_view(&View::of(step.shape_of(0)?).expanded(step.shape))
    }
}
