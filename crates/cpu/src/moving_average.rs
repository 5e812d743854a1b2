//! Moving averages of weights.

use hipvit_graph::op::{MovingAverage, OpError};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for MovingAverage {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [average, weight, factor] = [operands.values(0)?, operands.values(1)?, operands.values(2)?];
        let &[factor] = factor else {
            return Err("takes one factor".into());
        };
        if factor.is_nan() {
            results[0].copy_from_slice(average);
            return Ok(());
        }
        let len = block_len(1);
        let operands = average.par_chunks(len).zip(weight.par_chunks(len));
        results[0]
            .par_chunks_mut(len)
            .zip(operands)
            .for_each_item(|(out, (average, weight))| {
                for (out, (average, weight)) in out.iter_mut().zip(average.iter().zip(weight)) {
                    *out = self.decay * average + (1.0 - self.decay) * weight;
                }
            });
        Ok(())
    }
}
