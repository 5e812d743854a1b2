//! Change of a shape.

use hipvit_graph::op::{OpError, Reshape};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Reshape {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
