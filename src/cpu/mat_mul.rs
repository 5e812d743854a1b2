//! Matrix products for the backward passes of linear layers.

use hipvit_graph::op::{MatMul, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for MatMul {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
