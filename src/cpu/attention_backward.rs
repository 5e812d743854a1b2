//! Derivative of multi-head attention.

use hipvit_graph::op::{AttentionBackward, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for AttentionBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
