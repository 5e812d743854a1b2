//! Biases of attention's scores by relative position.

use hipvit_graph::op::{OpError, RelativeBias};

use super::{CpuOp, Operands, by_reference};

/// A bias is computed once for all images.
impl CpuOp for RelativeBias {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
