//! Slice of a tensor along one axis.

use hipvit_graph::op::{OpError, Slice};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Slice {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
