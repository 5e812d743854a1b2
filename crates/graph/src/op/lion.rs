//! Updates of weights by Lion.

use std::fmt;

use super::operands::count;
use super::optimizers::operands_with_momentum;
use super::{Definition, Locality, OpError, Shape, optimizers};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::dtype::DType;

/// `(weight f32, gradient, momentum f32, rate [1] f32, factor [1] f32) → (weight f32, momentum f32, rounded?)`: a step of Lion as
/// `timm.optim.Lion` computes it, with decoupled weight decay.
/// The gradient is multiplied by `factor`. If the factor is NaN, the weight and the momentum stay as they are.
///
/// The weight and the momentum are in f32 for any dtype of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Share of the momentum in the update, of which only the signs are used.
    pub beta1: f32,
    /// Decay of the momentum, the mean of the gradients.
    pub beta2: f32,
    /// Part of the weight that a learning rate of 1 subtracts.
    pub weight_decay: f32,
    /// Multiplied with the learning rate, such as a decay by layers.
    pub rate_factor: f32,
    /// True if the last result is the weight in the dtype of activations, for the next forward pass.
    pub rounded: bool,
    /// True if the gradient is in f32 in plans of any dtype, as that of [`Accumulate`](super::Accumulate) is.
    pub f32_gradient: bool,
}

impl Definition for Lion {
    const NAME: &'static str = "lion";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " β={}/{} λ={}", self.beta1, self.beta2, self.weight_decay)?;
        optimizers::fmt(f, self.rate_factor, self.rounded)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        optimizers::shapes_with_momentum(operands, self.rounded)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::operand_dtype(index, self.f32_gradient, dtype)
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::result_dtype(index, 1, dtype)
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        11 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 3..5 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [weight, gradient, momentum, rate, factor] =
            [0, 1, 2, 3, 4].map(|index: usize| operands[index].values());
        let [beta1, beta2, weight_decay] = [self.beta1, self.beta2, self.weight_decay].map(T::from_f32);
        let rate = rate[0] * T::from_f32(self.rate_factor);
        let is_skipped = factor[0].to_f64().is_nan();
        for i in 0..weight.len() {
            let g = gradient[i] * factor[0];
            let update = beta1 * momentum[i] + (T::ONE - beta1) * g;
            let m = beta2 * momentum[i] + (T::ONE - beta2) * g;
            let updated = weight[i] * (T::ONE - rate * weight_decay) - rate * sign(update);
            let all = if is_skipped {
                [weight[i], momentum[i], weight[i]]
            } else {
                [updated, m, updated]
            };
            for (result, value) in results.iter_mut().zip(all) {
                result.values_mut()[i] = value;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, channels], _| {
            let shape = [tokens, channels];
            let op = Self {
                beta1: 0.9,
                beta2: 0.99,
                weight_decay: 0.05,
                rate_factor: 0.75,
                rounded: true,
                f32_gradient: false,
            };
            for result in 0..3 {
                cases.push_result(result, op, operands_with_momentum(&shape, activation(&shape)));
            }
            let op = Self {
                f32_gradient: true,
                ..op
            };
            cases.push_result(2, op, operands_with_momentum(&shape, single(&shape)));
        });
    }

    fn tolerance(&self, index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        optimizers::tolerance_of(index, 1, dtype)
    }
}

/// Returns −1, 0 or 1.
fn sign<T: Real>(x: T) -> T {
    if x > T::ZERO {
        T::ONE
    } else if x < T::ZERO {
        -T::ONE
    } else {
        T::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::super::optimizers::tests::{array, assert_close, ten_steps};
    use super::*;

    const LION: Lion = Lion {
        beta1: 0.9,
        beta2: 0.99,
        weight_decay: 0.05,
        rate_factor: 0.5,
        rounded: false,
        f32_gradient: false,
    };

    /// Figures of timm 1.0.31 in f64.
    #[test]
    fn steps_are_those_of_timm() {
        let [weight, momentum] = ten_steps(LION);
        assert_close(
            &weight,
            [
                0.752_624_684_939_618_8,
                -1.806_150_857_569_634_3,
                0.283_896_704_035_220_5,
            ],
        );
        assert_close(
            &momentum,
            [
                0.001_389_464_028_160_819_6,
                -0.004_650_148_891_114_642,
                0.001_998_085_557_161_444_3,
            ],
        );
        // An update without a sign leaves the weight, which only decays.
        let zero = array(&[0.0]);
        let results = LION.eval(&[&array(&[2.0]), &zero, &zero, &array(&[0.2]), &array(&[1.0])]);
        assert!((results.unwrap()[0].values()[0] - 1.99).abs() < 1e-6);
    }

    #[test]
    fn a_step_whose_factor_is_nan_changes_nothing() {
        let (weight, momentum, rate) = (array(&[2.0]), array(&[0.25]), array(&[0.1]));
        let nan = array(&[f64::NAN]);
        let op = Lion {
            rounded: true,
            ..LION
        };
        let results = op.eval(&[&weight, &nan, &momentum, &rate, &nan]).unwrap();
        let values: Vec<f64> = results.iter().map(|result| result.values()[0]).collect();
        assert_eq!(values, [2.0, 0.25, 2.0]);
    }
}
