//! Order of the tokens of a grid.

use hipvit_graph::op::{OpError, PermuteTokens};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for PermuteTokens {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (_, channels) = self.from.extents(self.grid, operands.batched_shape(0)?)?;
        let sources = self.sources();
        let of_x = self.from.padded(self.grid).iter().product::<usize>() * channels;
        let x = operands.values(0)?;
        // Tasks of several tokens, since one is a few hundred bytes.
        let block = sources.len().div_ceil(TASKS);
        let images = results[0].par_chunks_mut(sources.len() * channels);
        images.zip(x.par_chunks(of_x)).for_each_item(|(y, x)| {
            let blocks = y.par_chunks_mut(block * channels).zip(sources.par_chunks(block));
            blocks.for_each_item(|(y, sources)| {
                for (y, source) in y.chunks_exact_mut(channels).zip(sources) {
                    match source {
                        Some(source) => y.copy_from_slice(&x[source * channels..][..channels]),
                        None => y.fill(0.0),
                    }
                }
            });
        });
        Ok(())
    }
}

/// Maximum number of tasks per image.
const TASKS: usize = 16;
