//! The loop of the optimisers whose only state is a momentum.

use hipvit_graph::op::OpError;
use rayon::prelude::*;

use super::Operands;
use super::rows::{SharedLoop, block_len};

/// Operands of a step: the weight, the gradient and the momentum, the learning rate, and the factor of the gradient.
pub(super) struct Step<'a> {
    elements: [&'a [f32]; 3],
    pub(super) rate: f32,
    factor: f32,
}

impl<'a> Step<'a> {
    pub(super) fn new(operands: &Operands<'a>) -> Result<Self, OpError> {
        let (&[rate], &[factor]) = (operands.values(3)?, operands.values(4)?) else {
            return Err("takes one learning rate and one factor".into());
        };
        Ok(Self {
            elements: [operands.values(0)?, operands.values(1)?, operands.values(2)?],
            rate,
            factor,
        })
    }

    /// Sets the results: the new weight, the new momentum, and maybe the weight as the next forward pass reads it. `update` returns the new
    /// weight and momentum for a weight, a gradient and a momentum. Nothing changes if the factor is NaN.
    pub(super) fn run(
        &self,
        results: &mut [&mut [f32]],
        update: impl Fn([f32; 3]) -> [f32; 2] + Sync,
    ) -> Result<(), OpError> {
        let [new_weight, new_momentum, rounded @ ..] = results else {
            return Err("has too few results".into());
        };
        let len = block_len(1);
        let [weight, gradient, momentum] = self.elements.map(|elements| elements.par_chunks(len));
        let operands = weight.zip(gradient).zip(momentum);
        let results = new_weight
            .par_chunks_mut(len)
            .zip(new_momentum.par_chunks_mut(len));
        results.zip(operands).for_each_item(
            |((new_weight, new_momentum), ((weight, gradient), momentum))| {
                if self.factor.is_nan() {
                    new_weight.copy_from_slice(weight);
                    new_momentum.copy_from_slice(momentum);
                    return;
                }
                for i in 0..new_weight.len() {
                    [new_weight[i], new_momentum[i]] =
                        update([weight[i], gradient[i] * self.factor, momentum[i]]);
                }
            },
        );
        // Activations are in f32.
        rounded
            .iter_mut()
            .for_each(|rounded| rounded.copy_from_slice(new_weight));
        Ok(())
    }
}
