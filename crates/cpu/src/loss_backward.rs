//! Derivatives of losses.

use hipvit_graph::op::{LossBackward, OpError};

use super::{CpuOp, Operands, by_reference};

/// One row per image is little work.
impl CpuOp for LossBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
