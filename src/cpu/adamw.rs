//! Updates of weights by AdamW.

use hipvit_graph::op::{AdamW, OpError};
use rayon::prelude::*;

use super::moments::{Step, moments};
use super::rows::block_len;
use super::{CpuOp, Operands};

/// Scalars of a step.
pub(super) struct Scalars {
    kept: f32,
    step: f32,
    root: f32,
    /// Factor of the gradient. NaN if nothing changes.
    pub(super) factor: f32,
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

/// Operands of a step whose moments are packed into words.
pub(super) struct CompactStep<'a> {
    pub(super) weight: &'a [f32],
    pub(super) gradient: &'a [f32],
    pub(super) moments: &'a [f32],
    pub(super) scalars: Scalars,
    /// Number of the update.
    pub(super) number: f32,
}

impl<'a> CompactStep<'a> {
    pub(super) fn new(op: &AdamW, operands: &Operands<'a>) -> Result<Self, OpError> {
        let (&[rate, correction1, correction2, number], &[factor]) =
            (operands.values(3)?, operands.values(4)?)
        else {
            return Err("takes four rates and one factor".into());
        };
        Ok(Self {
            weight: operands.values(0)?,
            gradient: operands.values(1)?,
            moments: operands.values(2)?,
            scalars: Scalars::new(op, rate, [correction1, correction2], factor),
            number,
        })
    }
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
            .for_each(|(((w, m), v), ((w0, g), (m0, v0)))| {
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
