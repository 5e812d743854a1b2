//! The SwiGLU gate followed by a norm.

use hipvit_graph::op::{OpError, SwiGluNorm};

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands, layer_norm, swiglu};

impl CpuOp for SwiGluNorm {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [x, weight, bias] = [operands.values(0)?, operands.values(1)?, operands.values(2)?];
        let d = weight.len();
        let normed = d - self.padding;
        in_blocks(Source::InPlace, results[0], block_len(d), |start, block| {
            swiglu::gate(&x[2 * start..], d, block);
            for row in block.chunks_mut(d) {
                let (row, rest) = row.split_at_mut(normed);
                layer_norm::in_place(self.epsilon, row, &weight[..normed], &bias[..normed]);
                rest.fill(0.0);
            }
        });
        Ok(())
    }
}
