//! Losses of pairs of images and texts.

use hipvit_graph::op::{ContrastiveLoss, OpError};

use super::{CpuOp, Operands, by_reference};

/// A matrix of the batch's pairs is little work beside the towers.
impl CpuOp for ContrastiveLoss {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
