//! Softmax of rows.

use hipvit_graph::op::{OpError, Softmax};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Softmax {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
