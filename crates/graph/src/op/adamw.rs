//! Updates of weights by AdamW.

use std::fmt;

use super::operands::count;
use super::optimizers::operands_with_moments;
use super::{Definition, Locality, OpError, Shape, optimizers};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::dtype::DType;

/// `(weight f32, gradient, first f32, second f32, rates [3] f32, factor [1] f32) → (weight f32, first f32, second f32, rounded?)`: a step of
/// AdamW as `torch.optim.AdamW` computes it, with decoupled weight decay. `rates` are the learning rate, `1 − beta1^t` and `1 − beta2^t` of
/// step t. The gradient is multiplied by `factor`. If the factor is NaN, the weight and the moments stay as they are.
///
/// The weight and the moments are in f32 for any dtype of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment, the mean of the gradients.
    pub beta1: f32,
    /// Decay of the second moment, the mean of their squares.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Part of the weight that a learning rate of 1 subtracts.
    pub weight_decay: f32,
    /// Multiplied with the learning rate, such as a decay by layers.
    pub rate_factor: f32,
    /// True if the last result is the weight in the dtype of activations, for the next forward pass.
    pub rounded: bool,
    /// True if the gradient is in f32 in plans of any dtype, as that of [`Accumulate`](super::Accumulate) is.
    pub f32_gradient: bool,
}

/// Scalars of a step.
pub(super) struct Step<T> {
    betas: [T; 2],
    epsilon: T,
    kept: T,
    step: T,
    root: T,
    factor: T,
}

impl<T: Real> Step<T> {
    /// `rates` begin with the learning rate, `1 − beta1^t` and `1 − beta2^t`.
    pub(super) fn new(op: &AdamW, rates: &[T], factor: T) -> Self {
        let rate = rates[0] * T::from_f32(op.rate_factor);
        Self {
            betas: [op.beta1, op.beta2].map(T::from_f32),
            epsilon: T::from_f32(op.epsilon),
            kept: T::ONE - rate * T::from_f32(op.weight_decay),
            step: rate / rates[1],
            root: rates[2].sqrt(),
            factor,
        }
    }

    /// Returns the new weight and moments. `None` if the factor is NaN.
    pub(super) fn update(&self, weight: T, gradient: T, [first, second]: [T; 2]) -> Option<[T; 3]> {
        let g = gradient * self.factor;
        let [beta1, beta2] = self.betas;
        let m = first + (g - first) * (T::ONE - beta1);
        let v = second * beta2 + g * g * (T::ONE - beta2);
        let updated = weight * self.kept - self.step * m / (v.sqrt() / self.root + self.epsilon);
        (!self.factor.to_f64().is_nan()).then_some([updated, m, v])
    }
}

/// The op of the cases, with moments of any type.
pub(super) const CASE: AdamW = AdamW {
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.05,
    rate_factor: 0.75,
    rounded: true,
    f32_gradient: false,
};

impl Definition for AdamW {
    const NAME: &'static str = "adamw";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " β={}/{} λ={}", self.beta1, self.beta2, self.weight_decay)?;
        optimizers::fmt(f, self.rate_factor, self.rounded)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        optimizers::shapes_with_moments(operands, self.rounded)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::operand_dtype(index, self.f32_gradient, dtype)
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::result_dtype(index, 2, dtype)
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        15 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 4..6 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [weight, gradient, first, second, rates, factor] =
            [0, 1, 2, 3, 4, 5].map(|index: usize| operands[index].values());
        let step = Step::new(self, rates, factor[0]);
        for i in 0..weight.len() {
            let updated = step.update(weight[i], gradient[i], [first[i], second[i]]);
            let [updated, m, v] = updated.unwrap_or([weight[i], first[i], second[i]]);
            for (result, value) in results.iter_mut().zip([updated, m, v, updated]) {
                result.values_mut()[i] = value;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, channels], _| {
            let shape = [tokens, channels];
            for result in 0..4 {
                cases.push_result(result, CASE, operands_with_moments(&shape, activation(&shape)));
            }
            let f32_gradient = Self {
                f32_gradient: true,
                ..CASE
            };
            cases.push_result(3, f32_gradient, operands_with_moments(&shape, single(&shape)));
        });
    }

    /// Some 20 roundings in f32, of terms that may cancel. A new moment is a mean of numbers of about its size.
    fn tolerance(&self, index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        optimizers::tolerance_of(index, 2, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_whose_factor_is_nan_changes_nothing() {
        let op = AdamW {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-6,
            weight_decay: 0.05,
            rate_factor: 1.0,
            rounded: true,
            f32_gradient: false,
        };
        let one = |value: f64| Array::new([1], vec![value]).unwrap();
        let rates = Array::new([3], vec![0.1, 0.1, 0.01]).unwrap();
        let operands = [
            &one(2.0),
            &one(f64::NAN),
            &one(0.25),
            &one(0.5),
            &rates,
            &one(f64::NAN),
        ];
        let results = op.eval(&operands).unwrap();
        let values: Vec<f64> = results.iter().map(|result| result.values()[0]).collect();
        assert_eq!(values, [2.0, 0.25, 0.5, 2.0]);
    }

    /// Figures of PyTorch 2.11 in f64.
    #[test]
    fn steps_are_those_of_pytorch() {
        let op = AdamW {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-6,
            weight_decay: 0.05,
            rate_factor: 0.5,
            rounded: false,
            f32_gradient: false,
        };
        let array = |values: &[f64]| Array::new([values.len()], values.to_vec()).unwrap();
        let mut states = [array(&[1.0, -2.0, 0.5]), array(&[0.0; 3]), array(&[0.0; 3])];
        // Gradients of twice the size, which the factor halves.
        for (step, gradient) in [(1, [0.6, -2.0, 4.0]), (2, [-0.4, 1.0, 2.0])] {
            let correction = |beta: f64| 1.0 - beta.powi(step);
            let rates = array(&[0.2, correction(0.9), correction(0.99)]);
            let [weight, first, second] = &states;
            let operands = [weight, &array(&gradient), first, second, &rates, &array(&[0.5])];
            let results = op.eval(&operands).unwrap();
            states = results.try_into().unwrap();
        }
        let expected = [
            [
                0.876_060_740_899_547,
                -1.853_880_190_378_147_7,
                0.302_167_808_698_316_16,
            ],
            [0.007, -0.04, 0.28],
            [0.001_291, 0.0124, 0.0496],
        ];
        for (state, expected) in states.iter().zip(expected) {
            for (value, expected) in state.values().iter().zip(expected) {
                // The attributes are in f32: 1 − beta1 is off by up to 3e-7 of itself.
                assert!((value - expected).abs() < 1e-6, "{value}, expected {expected}");
            }
        }
    }
}
