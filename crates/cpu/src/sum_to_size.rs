//! Sums over images, rows or groups of channels.

use hipvit_graph::op::{OpError, SumToSize};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for SumToSize {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
