//! The largest or smallest elements of rows.

use hipvit_graph::op::{OpError, TopK};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for TopK {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
