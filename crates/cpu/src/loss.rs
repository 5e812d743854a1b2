//! Losses of images.

use hipvit_graph::op::{Loss, OpError};

use super::{CpuOp, Operands, by_reference};

/// One row per image is little work.
impl CpuOp for Loss {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
