//! Affine maps of the channels.

use hipvit_graph::op::{Affine, OpError};

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for Affine {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [weight, bias] = [operands.values(1)?, operands.values(2)?];
        affine(operands.source(0)?, weight, bias, results[0]);
        Ok(())
    }
}

fn affine(x: Source<'_>, weight: &[f32], bias: &[f32], out: &mut [f32]) {
    in_blocks(x, out, block_len(weight.len()), |_, block| {
        for row in block.chunks_mut(weight.len()) {
            let factors = weight.iter().zip(bias);
            row.iter_mut()
                .zip(factors)
                .for_each(|(v, (w, b))| *v = *v * w + b);
        }
    });
}
