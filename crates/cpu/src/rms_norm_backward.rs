//! Derivative of RMS normalisation.

use hipvit_graph::op::{OpError, RmsNormBackward};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for RmsNormBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
