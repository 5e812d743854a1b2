//! Products of matrices, for each index of the axes before them.

use hipvit_graph::op::{BatchMatMul, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for BatchMatMul {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
