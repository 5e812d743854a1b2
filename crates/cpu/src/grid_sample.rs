//! Samples of images at given positions.

use hipvit_graph::op::{GridSample, OpError};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for GridSample {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[_, height, width, channels] = operands.batched_shape(0)? else {
            return Err("takes images".into());
        };
        let (x, grid) = (operands.values(0)?, operands.values(1)?);
        let &[images, ..] = operands.batched_shape(1)? else {
            return Err("takes positions".into());
        };
        let of_image = results[0].len() / images.max(1);
        if of_image == 0 {
            return Ok(());
        }
        let of_grid = of_image / channels * 2;
        let samples = results[0].par_chunks_mut(of_image);
        let images = x
            .par_chunks(height * width * channels)
            .zip(grid.par_chunks(of_grid));
        samples.zip(images).for_each_item(|(out, (x, grid))| {
            let positions = block_len(channels) / channels;
            let blocks = out.par_chunks_mut(positions * channels);
            blocks
                .zip(grid.par_chunks(positions * 2))
                .for_each_item(|(out, grid)| {
                    out.fill(0.0);
                    self.sample(x, [height, width], grid, out);
                });
        });
        Ok(())
    }
}
