//! Slices of a tensor by their indices.

use hipvit_graph::op::{Gather, OpError, gather};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for Gather {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, indices) = (operands.values(0)?, operands.values(1)?);
        let shape = operands.batched_shape(0)?;
        let extent = shape[self.axis];
        let inner: usize = shape[self.axis + 1..].iter().product();
        if inner == 0 || indices.is_empty() {
            return Ok(());
        }
        let rows = block_len(inner) / inner;
        let blocks = results[0].par_chunks_mut(rows * inner).enumerate();
        blocks.for_each_item(|(task, block)| {
            for (row, out) in block.chunks_exact_mut(inner).enumerate() {
                let row = task * rows + row;
                let (outer, index) = (row / indices.len(), indices[row % indices.len()]);
                let from = (outer * extent + gather::index(index, extent)) * inner;
                out.copy_from_slice(&x[from..from + inner]);
            }
        });
        Ok(())
    }
}
