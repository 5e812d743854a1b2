//! Slices of a tensor by their indices.

use hipvit_graph::op::{Gather, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Gather {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
