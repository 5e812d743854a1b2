//! Samples of images at given positions.

use hipvit_graph::op::{GridSample, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for GridSample {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
