//! Derivative of multi-head attention with a pattern.

use hipvit_graph::op::{OpError, PatternAttentionBackward};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for PatternAttentionBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
