//! Updates of weights by AdamW with moments in bf16.

use hipvit_graph::compact_moments::{Noise, pack_bf16, unpack_bf16};
use hipvit_graph::op::{AdamWBf16, OpError};

use super::adamw::{Packed, run_packed, update};
use super::rows::block_len;
use super::{CpuOp, Operands};

impl CpuOp for AdamWBf16 {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let len = block_len(1);
        run_packed(&self.0, operands, results, [len, len], |step: Packed<'_>| {
            for (i, (&weight, &gradient)) in step.weight.iter().zip(step.gradient).enumerate() {
                let [first, second] = unpack_bf16(step.words[i]);
                let updated = update(&self.0, step.scalars, [weight, gradient, first, second]);
                let noise = Noise::new(step.number, step.start + i);
                step.new_weight[i] = updated[0];
                step.new_words[i] = pack_bf16([updated[1], updated[2]], noise);
            }
        })
    }
}
