//! Running sums along an axis.

use hipvit_graph::op::{CumSum, OpError};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for CumSum {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, shape) = (operands.values(0)?, operands.batched_shape(0)?);
        let extent = shape[self.axis];
        let inner: usize = shape[self.axis + 1..].iter().product();
        if x.is_empty() {
            return Ok(());
        }
        let slabs = results[0].par_chunks_mut(extent * inner);
        slabs.zip(x.par_chunks(extent * inner)).for_each_item(|(y, x)| {
            let mut sums = vec![0.0; inner];
            for step in 0..extent {
                let row = if self.reverse { extent - 1 - step } else { step };
                let row = row * inner..(row + 1) * inner;
                let elements = y[row.clone()].iter_mut().zip(&x[row]);
                for (sum, (y, x)) in sums.iter_mut().zip(elements) {
                    let before = *sum;
                    *sum += x;
                    *y = if self.exclusive { before } else { *sum };
                }
            }
        });
        Ok(())
    }
}
