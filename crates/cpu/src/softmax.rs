//! Softmax of rows.

use hipvit_graph::op::{OpError, Softmax};
use rten_simd::{Isa, SimdOp};
use rten_vecmath::LogSoftmax;

use super::attention::SoftmaxRows;
use super::rows::{block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for Softmax {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let keys = operands.channels(0)?;
        in_blocks(operands.source(0)?, results[0], block_len(keys), |_, scores| {
            if self.log {
                LogRows { scores, keys }.dispatch();
            } else {
                SoftmaxRows { scores, keys }.dispatch();
            }
        });
        Ok(())
    }
}

/// Logarithms of the softmax in place of rows of `keys` scores, with one dispatch of the instruction set.
struct LogRows<'a> {
    scores: &'a mut [f32],
    keys: usize,
}

impl SimdOp for LogRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        for row in self.scores.chunks_exact_mut(self.keys) {
            LogSoftmax::new_mut(row).eval(isa);
        }
    }
}
