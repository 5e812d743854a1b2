//! Multiplication by a number.

use hipvit_graph::op::{MulScalar, OpError};

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for MulScalar {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        mul_scalar(operands.source(0)?, self.0, results[0]);
        Ok(())
    }
}

fn mul_scalar(x: Source<'_>, factor: f32, out: &mut [f32]) {
    in_blocks(x, out, block_len(1), |_, block| {
        block.iter_mut().for_each(|v| *v *= factor);
    });
}
