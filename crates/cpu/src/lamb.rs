//! Updates of weights by LAMB.

use hipvit_graph::op::lamb::LAMB_CHUNK;
use hipvit_graph::op::{Lamb, OpError};
use rayon::prelude::*;

use super::moments::{Step, moments};
use super::rows::SharedLoop;
use super::{CpuOp, Operands};

/// Scalars of a step.
struct Scalars {
    factor: f32,
    correction: f32,
    root: f32,
}

impl CpuOp for Lamb {
    /// Squares of a chunk are added in f64, and the sums of chunks in order, so that the result does not depend on the number of threads.
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let Step {
            weight,
            gradient,
            first,
            second,
            rate,
            corrections: [correction1, correction2],
            factor,
        } = Step::new(operands)?;
        let [new_weight, new_first, new_second, rounded @ ..] = results else {
            return Err("has too few results".into());
        };
        if factor.is_nan() {
            new_first.copy_from_slice(first);
            new_second.copy_from_slice(second);
            new_weight.copy_from_slice(weight);
        } else {
            let scalars = Scalars {
                factor,
                correction: correction1,
                root: correction2.sqrt(),
            };
            // The new weight holds the updates until the ratio is known.
            let results = new_weight.par_chunks_mut(LAMB_CHUNK);
            let results = results.zip(new_first.par_chunks_mut(LAMB_CHUNK));
            let results = results.zip(new_second.par_chunks_mut(LAMB_CHUNK));
            let moments = first.par_chunks(LAMB_CHUNK).zip(second.par_chunks(LAMB_CHUNK));
            let operands = weight.par_chunks(LAMB_CHUNK);
            let operands = operands.zip(gradient.par_chunks(LAMB_CHUNK)).zip(moments);
            let sums: Vec<[f64; 2]> = results
                .zip(operands)
                .map(|(((u, m), v), ((w, g), (m0, v0)))| {
                    let mut squares = [0.0; 2];
                    for i in 0..u.len() {
                        [u[i], m[i], v[i]] = update(self, &scalars, [w[i], g[i], m0[i], v0[i]]);
                        for (sum, x) in squares.iter_mut().zip([w[i], u[i]]) {
                            *sum += f64::from(x) * f64::from(x);
                        }
                    }
                    squares
                })
                .collect();
            let step = rate * self.rate_factor * self.ratio(&sums);
            let chunks = new_weight.par_chunks_mut(LAMB_CHUNK);
            chunks
                .zip(weight.par_chunks(LAMB_CHUNK))
                .for_each_item(|(updates, weight)| {
                    for (update, weight) in updates.iter_mut().zip(weight) {
                        *update = weight - step * *update;
                    }
                });
        }
        // Activations are in f32.
        rounded
            .iter_mut()
            .for_each(|rounded| rounded.copy_from_slice(new_weight));
        Ok(())
    }
}

/// Returns the update for a ratio of 1, and the new first and second moment.
fn update(op: &Lamb, scalars: &Scalars, [weight, gradient, first, second]: [f32; 4]) -> [f32; 3] {
    let gradient = gradient * scalars.factor;
    let [first, second] = moments([op.beta1, op.beta2], gradient, [first, second]);
    let denominator = second.sqrt() / scalars.root + op.epsilon;
    let update = first / scalars.correction / denominator + op.weight_decay * weight;
    [update, first, second]
}
