//! Rounding to int8 in quantisation-aware training.

use hipvit_graph::int8::RowGrid;
use hipvit_graph::op::{FakeQuantize, OpError};

use super::rows::{block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for FakeQuantize {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let channels = operands.channels(0)?.max(1);
        in_blocks(
            operands.source(0)?,
            results[0],
            block_len(channels),
            |_, block| {
                for row in block.chunks_mut(channels) {
                    let grid = RowGrid::of(row.iter().copied(), self.grid);
                    row.iter_mut().for_each(|x| *x = grid.level(*x) * grid.scale);
                }
            },
        );
        Ok(())
    }
}
