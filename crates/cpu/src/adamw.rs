//! Updates of weights by AdamW.

use hipvit_graph::op::{AdamW, OpError};
use rayon::prelude::*;

use super::moments::{Step, moments};
use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

/// Scalars of a step.
pub(super) struct Scalars {
    kept: f32,
    step: f32,
    root: f32,
    /// Factor of the gradient. NaN if nothing changes.
    factor: f32,
}

impl Scalars {
    fn new(op: &AdamW, rate: f32, [correction1, correction2]: [f32; 2], factor: f32) -> Self {
        let rate = rate * op.rate_factor;
        Self {
            kept: 1.0 - rate * op.weight_decay,
            step: rate / correction1,
            root: correction2.sqrt(),
            factor,
        }
    }
}

/// A range of a step whose moments are packed into words.
pub(super) struct Packed<'a> {
    /// Index of the first weight.
    pub(super) start: usize,
    pub(super) weight: &'a [f32],
    pub(super) gradient: &'a [f32],
    pub(super) words: &'a [f32],
    pub(super) new_weight: &'a mut [f32],
    pub(super) new_words: &'a mut [f32],
    pub(super) scalars: &'a Scalars,
    /// Number of the update.
    pub(super) number: f32,
}

/// Runs a step whose moments are packed into words: `update` updates ranges of `len` weights, whose moments are `words` words.
pub(super) fn run_packed(
    op: &AdamW,
    operands: &Operands<'_>,
    results: &mut [&mut [f32]],
    [len, words]: [usize; 2],
    update: impl Fn(Packed<'_>) + Sync,
) -> Result<(), OpError> {
    let (&[rate, correction1, correction2, number], &[factor]) = (operands.values(3)?, operands.values(4)?)
    else {
        return Err("takes four rates and one factor".into());
    };
    let [weight, gradient, moments] = [operands.values(0)?, operands.values(1)?, operands.values(2)?];
    let [new_weight, new_moments, rounded @ ..] = results else {
        return Err("has too few results".into());
    };
    let scalars = Scalars::new(op, rate, [correction1, correction2], factor);
    if factor.is_nan() {
        new_weight.copy_from_slice(weight);
        new_moments.copy_from_slice(moments);
    } else {
        let results = new_weight
            .par_chunks_mut(len)
            .zip(new_moments.par_chunks_mut(words));
        let operands = weight.par_chunks(len).zip(gradient.par_chunks(len));
        let operands = operands.zip(moments.par_chunks(words)).enumerate();
        results.zip(operands).for_each_item(
            |((new_weight, new_words), (index, ((weight, gradient), words)))| {
                update(Packed {
                    start: index * len,
                    weight,
                    gradient,
                    words,
                    new_weight,
                    new_words,
                    scalars: &scalars,
                    number,
                });
            },
        );
    }
    // Activations are in f32.
    rounded
        .iter_mut()
        .for_each(|rounded| rounded.copy_from_slice(new_weight));
    Ok(())
}

impl CpuOp for AdamW {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let Step {
            weight,
            gradient,
            first,
            second,
            rate,
            corrections,
            factor,
        } = Step::new(operands)?;
        let scalars = Scalars::new(self, rate, corrections, factor);
        let [new_weight, new_first, new_second, rounded @ ..] = results else {
            return Err("has too few results".into());
        };
        let len = block_len(1);
        let results = new_weight.par_chunks_mut(len).zip(new_first.par_chunks_mut(len));
        let results = results.zip(new_second.par_chunks_mut(len));
        let moments = first.par_chunks(len).zip(second.par_chunks(len));
        let operands = weight.par_chunks(len).zip(gradient.par_chunks(len)).zip(moments);
        results
            .zip(operands)
            .for_each_item(|(((w, m), v), ((w0, g), (m0, v0)))| {
                if scalars.factor.is_nan() {
                    w.copy_from_slice(w0);
                    m.copy_from_slice(m0);
                    v.copy_from_slice(v0);
                    return;
                }
                for i in 0..w.len() {
                    [w[i], m[i], v[i]] = update(self, &scalars, [w0[i], g[i], m0[i], v0[i]]);
                }
            });
        // Activations are in f32.
        rounded
            .iter_mut()
            .for_each(|rounded| rounded.copy_from_slice(new_weight));
        Ok(())
    }
}

/// Returns the new weight, first and second moment.
pub(super) fn update(op: &AdamW, scalars: &Scalars, [weight, gradient, first, second]: [f32; 4]) -> [f32; 3] {
    let gradient = gradient * scalars.factor;
    let [first, second] = moments([op.beta1, op.beta2], gradient, [first, second]);
    let denominator = second.sqrt() / scalars.root + op.epsilon;
    [
        weight * scalars.kept - scalars.step * first / denominator,
        first,
        second,
    ]
}
