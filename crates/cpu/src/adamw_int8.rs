//! Updates of weights by AdamW with moments in 8 bits.

use hipvit_graph::compact_moments::{BLOCK, BLOCK_WORDS, pack_int8, unpack_int8};
use hipvit_graph::op::{AdamWInt8, OpError};

use super::adamw::{Packed, run_packed, update};
use super::{CpuOp, Operands};

impl CpuOp for AdamWInt8 {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let sizes = [BLOCK, BLOCK_WORDS];
        run_packed(&self.0, operands, results, sizes, |step: Packed<'_>| {
            let mut moments = [[0.0; 2]; BLOCK];
            unpack_int8(step.words, |index, of| moments[index] = of);
            let moments = &mut moments[..step.weight.len()];
            for (i, moments) in moments.iter_mut().enumerate() {
                let [first, second] = *moments;
                let operands = [step.weight[i], step.gradient[i], first, second];
                let [updated, first, second] = update(&self.0, step.scalars, operands);
                step.new_weight[i] = updated;
                *moments = [first, second];
            }
            pack_int8(moments, step.number, step.start, step.new_words);
        })
    }
}
