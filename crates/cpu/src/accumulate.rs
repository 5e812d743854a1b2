//! Sums of gradients.

use hipvit_graph::op::{Accumulate, OpError};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for Accumulate {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [sum, gradient, keep] = [operands.values(0)?, operands.values(1)?, operands.values(2)?];
        let &[keep] = keep else {
            return Err("takes one factor of the sum".into());
        };
        let len = block_len(1);
        let operands = sum.par_chunks(len).zip(gradient.par_chunks(len));
        results[0]
            .par_chunks_mut(len)
            .zip(operands)
            .for_each_item(|(out, (sum, gradient))| {
                if keep == 0.0 {
                    out.copy_from_slice(gradient);
                    return;
                }
                for (out, (sum, gradient)) in out.iter_mut().zip(sum.iter().zip(gradient)) {
                    *out = keep * sum + gradient;
                }
            });
        Ok(())
    }
}
