//! Scaling of the channels.

use hipvit_graph::op::{OpError, Scale};

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for Scale {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        scale(operands.source(0)?, operands.values(1)?, results[0]);
        Ok(())
    }
}

fn scale(x: Source<'_>, gamma: &[f32], out: &mut [f32]) {
    in_blocks(x, out, block_len(gamma.len()), |_, block| {
        for row in block.chunks_mut(gamma.len()) {
            row.iter_mut().zip(gamma).for_each(|(v, g)| *v *= g);
        }
    });
}
