//! Updates of weights by AdamW with moments in bf16.

use hipvit_graph::compact_moments::{Noise, pack_bf16, unpack_bf16};
use hipvit_graph::op::{AdamWBf16, OpError};
use rayon::prelude::*;

use super::adamw::{CompactStep, update};
use super::rows::block_len;
use super::{CpuOp, Operands};

impl CpuOp for AdamWBf16 {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let CompactStep {
            weight,
            gradient,
            moments,
            scalars,
            number,
        } = CompactStep::new(&self.0, operands)?;
        let [new_weight, new_moments, rounded @ ..] = results else {
            return Err("has too few results".into());
        };
        let len = block_len(1);
        let results = new_weight
            .par_chunks_mut(len)
            .zip(new_moments.par_chunks_mut(len));
        let operands = weight.par_chunks(len).zip(gradient.par_chunks(len));
        let operands = operands.zip(moments.par_chunks(len)).enumerate();
        results
            .zip(operands)
            .for_each(|((w, words), (block, ((w0, g), words0)))| {
                if scalars.factor.is_nan() {
                    w.copy_from_slice(w0);
                    words.copy_from_slice(words0);
                    return;
                }
                for i in 0..w.len() {
                    let [first, second] = unpack_bf16(words0[i]);
                    let [updated, first, second] = update(&self.0, &scalars, [w0[i], g[i], first, second]);
                    w[i] = updated;
                    words[i] = pack_bf16([first, second], Noise::new(number, block * len + i));
                }
            });
        // Activations are in f32.
        rounded
            .iter_mut()
            .for_each(|rounded| rounded.copy_from_slice(new_weight));
        Ok(())
    }
}
