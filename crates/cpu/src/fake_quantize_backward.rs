//! Derivative of rounding to int8.

use hipvit_graph::int8::RowGrid;
use hipvit_graph::op::{FakeQuantizeBackward, OpError};

use super::rows::{block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for FakeQuantizeBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, channels) = (operands.values(0)?, operands.channels(0)?.max(1));
        let len = block_len(channels);
        in_blocks(operands.source(1)?, results[0], len, |start, block| {
            let rows = x[start..start + block.len()].chunks(channels);
            for (dy, x) in block.chunks_mut(channels).zip(rows) {
                let grid = RowGrid::of(x.iter().copied(), self.grid);
                for (dy, &x) in dy.iter_mut().zip(x) {
                    if grid.clips(x) {
                        *dy = 0.0;
                    }
                }
            }
        });
        Ok(())
    }
}
