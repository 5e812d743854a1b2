//! Updates of weights by LAMB.

use std::fmt;

use super::operands::count;
use super::optimizers::operands_with_moments;
use super::{Definition, Locality, OpError, Shape, optimizers};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::dtype::DType;
use crate::tolerance::tolerance;

/// Elements that one partial sum of squares adds. Implementations add the partial sums in order, so that equal steps have equal bits.
pub const LAMB_CHUNK: usize = 1024;

/// `(weight f32, gradient, first f32, second f32, rates [3] f32, factor [1] f32) → (weight f32, first f32, second f32, rounded?)`: a step of
/// LAMB as `timm.optim.Lamb` computes it. <https://arxiv.org/abs/1904.00962>
///
/// The update is that of Adam plus `weight_decay · weight`. If the weight decays, the update is multiplied by the trust ratio `‖weight‖ /
/// ‖update‖`, or by 1 if a norm is 0. `rates` are the learning rate, `1 − beta1^t` and `1 − beta2^t` of step t. The gradient is multiplied
/// by `factor`. If the factor is NaN, the weight and the moments stay as they are.
///
/// The weight and the moments are in f32 for any dtype of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lamb {
    /// Decay of the first moment, the mean of the gradients.
    pub beta1: f32,
    /// Decay of the second moment, the mean of their squares.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Share of the weight in the update. 0 for an update without a trust ratio.
    pub weight_decay: f32,
    /// Multiplied with the learning rate, such as a decay by layers.
    pub rate_factor: f32,
    /// True if the last result is the weight in the dtype of activations, for the next forward pass.
    pub rounded: bool,
    /// True if the gradient is in f32 in plans of any dtype, as that of [`Accumulate`](super::Accumulate) is.
    pub f32_gradient: bool,
}

impl Lamb {
    /// Returns the trust ratio from the sums of the squares of parts of the weight and of its update.
    pub fn ratio(&self, sums: &[[f64; 2]]) -> f32 {
        let norms = [0, 1].map(|of: usize| sums.iter().map(|part| part[of]).sum::<f64>().sqrt());
        if self.weight_decay != 0.0 && norms.iter().all(|&norm| norm > 0.0) {
            (norms[0] / norms[1]) as f32
        } else {
            1.0
        }
    }
}

/// Returns the norm of `values`.
fn norm<T: Real>(values: &[T]) -> T {
    let chunks = values.chunks(LAMB_CHUNK);
    let sum: T = chunks.map(|chunk| chunk.iter().map(|&x| x * x).sum::<T>()).sum();
    sum.sqrt()
}

impl Definition for Lamb {
    const NAME: &'static str = "lamb";

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

    /// The update is computed twice on GPUs, for its norm and for the weight. The second time is not counted.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        20 * count(operands[0])
    }

    /// The norms are those of all elements.
    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [weight, gradient, first, second, rates, factor] =
            [0, 1, 2, 3, 4, 5].map(|index: usize| operands[index].values());
        if factor[0].to_f64().is_nan() {
            for (result, values) in results.iter_mut().zip([weight, first, second, weight]) {
                result.values_mut().copy_from_slice(values);
            }
            return;
        }
        let [beta1, beta2, epsilon, weight_decay] =
            [self.beta1, self.beta2, self.epsilon, self.weight_decay].map(T::from_f32);
        let root = rates[2].sqrt();
        let mut updates = Vec::with_capacity(weight.len());
        for i in 0..weight.len() {
            let g = gradient[i] * factor[0];
            let m = first[i] + (g - first[i]) * (T::ONE - beta1);
            let v = second[i] * beta2 + g * g * (T::ONE - beta2);
            updates.push(m / rates[1] / (v.sqrt() / root + epsilon) + weight_decay * weight[i]);
            results[1].values_mut()[i] = m;
            results[2].values_mut()[i] = v;
        }
        let norms = [norm(weight), norm(&updates)];
        let ratio = if self.weight_decay != 0.0 && norms.iter().all(|&norm| norm > T::ZERO) {
            norms[0] / norms[1]
        } else {
            T::ONE
        };
        let step = rates[0] * T::from_f32(self.rate_factor) * ratio;
        let updated: Vec<T> = weight.iter().zip(updates).map(|(&w, u)| w - step * u).collect();
        for index in [0, 3] {
            if let Some(result) = results.get_mut(index) {
                result.values_mut().copy_from_slice(&updated);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let op = Self {
                beta1: 0.9,
                beta2: 0.95,
                epsilon: 1e-6,
                weight_decay: 0.05,
                rate_factor: 0.75,
                rounded: true,
                f32_gradient: false,
            };
            // Several partial sums at larger sizes.
            let shape = [batch * tokens, channels];
            for result in 0..4 {
                cases.push_result(result, op, operands_with_moments(&shape, activation(&shape)));
            }
            let undecayed = Self {
                weight_decay: 0.0,
                ..op
            };
            cases.push(undecayed, operands_with_moments(&shape, activation(&shape)));
            let f32_gradient = Self {
                f32_gradient: true,
                ..op
            };
            cases.push_result(3, f32_gradient, operands_with_moments(&shape, single(&shape)));
        });
    }

    /// As for the other optimisers. The ratio of two norms has the error of sums of squares too.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let norms = tolerance(DType::F32, operands[0].values().len());
        optimizers::tolerance_of(index, 2, dtype) + if matches!(index, 0 | 3) { norms } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::optimizers::tests::{array, assert_close};
    use super::*;

    const LAMB: Lamb = Lamb {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-6,
        weight_decay: 0.05,
        rate_factor: 0.5,
        rounded: false,
        f32_gradient: false,
    };

    /// Returns the weight and the moments after ten steps.
    fn ten_steps(op: Lamb) -> [Array; 3] {
        let mut states = [array(&[1.0, -2.0, 0.5]), array(&[0.0; 3]), array(&[0.0; 3])];
        for step in 0..10 {
            // Gradients of twice the size, which the factor halves.
            let gradient: Vec<f64> = (0..3)
                .map(|i| f64::from((step * 7 + i * 5) % 11 - 5) / 4.0)
                .collect();
            let correction = |beta: f64| 1.0 - beta.powi(step + 1);
            let rates = array(&[0.2, correction(0.9), correction(0.99)]);
            let [weight, first, second] = &states;
            let operands = [weight, &array(&gradient), first, second, &rates, &array(&[0.5])];
            states = op.eval(&operands).unwrap().try_into().unwrap();
        }
        states
    }

    /// Figures of timm 1.0.31 in f64, with `max_grad_norm=None`.
    #[test]
    fn ten_steps_are_those_of_timm() {
        let [weight, first, second] = ten_steps(LAMB);
        let expected = [
            0.976_097_861_202_505_5,
            -0.988_890_591_493_541_1,
            -0.201_595_374_209_331_9,
        ];
        assert_close(&weight, expected);
        assert_close(
            &first,
            [
                0.019_532_914_687_5,
                -0.024_583_364_249_999_996,
                -0.008_611_963_062_5,
            ],
        );
        let expected = [
            0.016_211_767_692_399_334,
            0.014_075_752_293_579_8,
            0.015_788_323_994_234_053,
        ];
        assert_close(&second, expected);
        // Without weight decay, timm does not scale the update.
        let undecayed = Lamb {
            weight_decay: 0.0,
            ..LAMB
        };
        let expected = [
            1.135_317_298_966_968,
            -1.787_178_681_459_739_7,
            0.191_616_776_935_754_55,
        ];
        assert_close(&ten_steps(undecayed)[0], expected);
    }

    #[test]
    fn weights_of_zeros_have_no_trust_ratio() {
        let zeros = array(&[0.0; 2]);
        let rates = array(&[0.2, 0.1, 0.01]);
        let operands = [
            &zeros,
            &array(&[1.0, -1.0]),
            &zeros,
            &zeros,
            &rates,
            &array(&[1.0]),
        ];
        let weight = LAMB.eval(&operands).unwrap().remove(0);
        assert_close_pair(&weight, [-0.1, 0.1]);
    }

    fn assert_close_pair(found: &Array, expected: [f64; 2]) {
        for (found, expected) in found.values().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
        }
    }

    #[test]
    fn a_step_whose_factor_is_nan_changes_nothing() {
        let one = |value: f64| array(&[value]);
        let op = Lamb {
            rounded: true,
            ..LAMB
        };
        let rates = array(&[0.1, 0.1, 0.01]);
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
}
