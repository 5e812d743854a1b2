//! Transposed convolution of images.

use hipvit_graph::op::{ConvTranspose, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for ConvTranspose {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
