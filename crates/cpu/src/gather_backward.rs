//! Derivative of slices by their indices.

use hipvit_graph::op::{GatherBackward, OpError, gather};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for GatherBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (indices, dy) = (operands.values(0)?, operands.values(1)?);
        let dx = &mut *results[0];
        let inner = dx.len() / self.rows.max(1);
        if inner == 0 || indices.is_empty() {
            dx.fill(0.0);
            return Ok(());
        }
        // Places in the order of their rows, and of the places for equal rows.
        let mut places: Vec<(usize, usize)> = indices
            .iter()
            .enumerate()
            .map(|(place, &at)| (gather::index(at, self.rows), place))
            .collect();
        places.sort_unstable();
        let rows = block_len(inner) / inner;
        let blocks = dx.par_chunks_mut(rows * inner).enumerate();
        blocks.for_each_item(|(block, sums)| {
            sums.fill(0.0);
            let first = block * rows;
            let start = places.partition_point(|&(row, _)| row < first);
            let of_block = places[start..].iter().take_while(|(row, _)| *row < first + rows);
            for &(row, place) in of_block {
                let sums = sums[(row - first) * inner..][..inner].iter_mut();
                let slice = &dy[place * inner..][..inner];
                sums.zip(slice).for_each(|(sum, value)| *sum += value);
            }
        });
        Ok(())
    }
}
