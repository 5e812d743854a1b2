//! Elements of a tensor by indices of their own.

use hipvit_graph::op::{GatherElements, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for GatherElements {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
