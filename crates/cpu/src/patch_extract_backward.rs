//! Derivative of patch extraction.

use hipvit_graph::op::{OpError, PatchExtractBackward};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for PatchExtractBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
