//! Normalisation of groups of channels over all pixels of an image.

use hipvit_graph::op::{GroupNorm, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for GroupNorm {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
