//! Derivative of the SwiGLU gate.

use hipvit_graph::op::{OpError, SwiGluBackward};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for SwiGluBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
