//! Convolution of images.

use hipvit_graph::op::{Conv, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Conv {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
