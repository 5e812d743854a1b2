//! Means of sliding windows over images.

use hipvit_graph::op::{AveragePool, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for AveragePool {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
