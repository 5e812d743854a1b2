//! Elements of a tensor by indices of their own.

use hipvit_graph::op::{GatherElements, OpError, gather};
use hipvit_graph::strided::strides;
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for GatherElements {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, indices) = (operands.values(0)?, operands.values(1)?);
        let (of_x, extents) = (operands.batched_shape(0)?, operands.batched_shape(1)?);
        let strides = strides(of_x);
        let len = block_len(1);
        let blocks = results[0]
            .par_chunks_mut(len)
            .zip(indices.par_chunks(len))
            .enumerate();
        blocks.for_each_item(|(task, (out, indices))| {
            for (place, (y, &index)) in out.iter_mut().zip(indices).enumerate() {
                let (mut rest, mut from) = (task * len + place, 0);
                for (axis, &extent) in extents.iter().enumerate().rev() {
                    let at = if axis == self.axis {
                        gather::index(index, of_x[axis])
                    } else {
                        rest % extent
                    };
                    from += at * strides[axis].unsigned_abs();
                    rest /= extent;
                }
                *y = x[from];
            }
        });
        Ok(())
    }
}
