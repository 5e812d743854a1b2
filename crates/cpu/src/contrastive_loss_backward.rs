//! Derivatives of losses of pairs of images and texts.

use hipvit_graph::op::{ContrastiveLossBackward, OpError};

use super::{CpuOp, Operands, by_reference};

/// A matrix of the batch's pairs is little work beside the towers.
impl CpuOp for ContrastiveLossBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
