//! Derivative of pooling.

use hipvit_graph::op::{OpError, PoolBackward};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for PoolBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
