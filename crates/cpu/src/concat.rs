//! Concatenation along an axis.

use hipvit_graph::op::{Concat, OpError};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for Concat {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let mut parts = Vec::with_capacity(operands.count());
        for index in 0..operands.count() {
            let row: usize = operands.batched_shape(index)?[self.axis..].iter().product();
            parts.push((operands.values(index)?, row));
        }
        let width: usize = parts.iter().map(|(_, row)| row).sum();
        let rows = block_len(width) / width.max(1);
        let blocks = results[0].par_chunks_mut((rows * width).max(1)).enumerate();
        blocks.for_each_item(|(task, block)| {
            for (row, out) in block.chunks_exact_mut(width).enumerate() {
                let mut rest = out;
                for &(x, len) in &parts {
                    let (part, after) = rest.split_at_mut(len);
                    part.copy_from_slice(&x[(task * rows + row) * len..][..len]);
                    rest = after;
                }
            }
        });
        Ok(())
    }
}
