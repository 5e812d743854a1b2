//! Updates of weights by AdamW with moments in 8 bits.

use hipvit_graph::compact_moments::{BLOCK, BLOCK_WORDS, pack_int8, unpack_int8};
use hipvit_graph::op::{AdamWInt8, OpError};
use rayon::prelude::*;

use super::adamw::{CompactStep, update};
use super::{CpuOp, Operands};

impl CpuOp for AdamWInt8 {
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
        let results = new_weight
            .par_chunks_mut(BLOCK)
            .zip(new_moments.par_chunks_mut(BLOCK_WORDS));
        let operands = weight.par_chunks(BLOCK).zip(gradient.par_chunks(BLOCK));
        let operands = operands.zip(moments.par_chunks(BLOCK_WORDS)).enumerate();
        results
            .zip(operands)
            .for_each(|((w, words), (block, ((w0, g), words0)))| {
                if scalars.factor.is_nan() {
                    w.copy_from_slice(w0);
                    words.copy_from_slice(words0);
                    return;
                }
                let mut moments = [[0.0; 2]; BLOCK];
                unpack_int8(words0, |index, of| moments[index] = of);
                for (i, moments) in moments[..w.len()].iter_mut().enumerate() {
                    let [first, second] = *moments;
                    let [updated, first, second] = update(&self.0, &scalars, [w0[i], g[i], first, second]);
                    w[i] = updated;
                    *moments = [first, second];
                }
                pack_int8(&moments[..w.len()], number, block * BLOCK, words);
            });
        // Activations are in f32.
        rounded
            .iter_mut()
            .for_each(|rounded| rounded.copy_from_slice(new_weight));
        Ok(())
    }
}
