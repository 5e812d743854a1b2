//! Derivative of biases by relative position.

use hipvit_graph::op::{OpError, RelativeBiasBackward};

use super::{CpuOp, Operands, by_reference};

/// A gradient is computed once for all images.
impl CpuOp for RelativeBiasBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
