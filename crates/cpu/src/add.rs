//! Addition that is not fused into another op.

use hipvit_graph::op::{Add, OpError};

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for Add {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        add(operands.source(0)?, operands.values(1)?, results[0]);
        Ok(())
    }
}

/// Adds y, which has either one image or the images of x.
fn add(x: Source<'_>, y: &[f32], out: &mut [f32]) {
    // Blocks must not cross the end of a shared y.
    out.chunks_mut(y.len().max(1))
        .enumerate()
        .for_each(|(image, out)| {
            let x = match x {
                Source::InPlace => Source::InPlace,
                Source::At(x) => Source::At(&x[image * y.len()..][..out.len()]),
            };
            in_blocks(x, out, block_len(1), |start, block| {
                block.iter_mut().zip(&y[start..]).for_each(|(v, y)| *v += y);
            });
        });
}
