//! Losses of images that learn from a teacher.

use hipvit_graph::op::{DistillationLoss, OpError};

use super::{CpuOp, Operands, by_reference};

/// One row per image is little work.
impl CpuOp for DistillationLoss {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
