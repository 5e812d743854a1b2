//! Updates of weights by SGD with momentum.

use std::fmt;

use super::operands::count;
use super::optimizers::operands_with_momentum;
use super::{Definition, Locality, OpError, Shape, optimizers};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::dtype::DType;

/// `(weight f32, gradient, momentum f32, rate [1] f32, factor [1] f32) → (weight f32, momentum f32, rounded?)`: a step of SGD as `torch.optim.SGD`
/// computes it, without dampening. The weight decay is added to the gradient.
/// The gradient is multiplied by `factor`. If the factor is NaN, the weight and the momentum stay as they are.
///
/// The weight and the momentum are in f32 for any dtype of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Decay of the momentum, the sum of the gradients. 0 for SGD without momentum.
    pub momentum: f32,
    /// Multiplied with the weight and added to the gradient.
    pub weight_decay: f32,
    /// True for Nesterov's momentum: the step is that of the momentum after the next decay.
    pub nesterov: bool,
    /// Multiplied with the learning rate, such as a decay by layers.
    pub rate_factor: f32,
    /// True if the last result is the weight in the dtype of activations, for the next forward pass.
    pub rounded: bool,
    /// True if the gradient is in f32 in plans of any dtype, as that of [`Accumulate`](super::Accumulate) is.
    pub f32_gradient: bool,
}

impl Definition for Sgd {
    const NAME: &'static str = "sgd";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " μ={} λ={}", self.momentum, self.weight_decay)?;
        f.write_str(if self.nesterov { " nesterov" } else { "" })?;
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
        8 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 3..5 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [weight, gradient, momentum, rate, factor] =
            [0, 1, 2, 3, 4].map(|index: usize| operands[index].values());
        let [decay, weight_decay] = [self.momentum, self.weight_decay].map(T::from_f32);
        let rate = rate[0] * T::from_f32(self.rate_factor);
        let is_skipped = factor[0].to_f64().is_nan();
        for i in 0..weight.len() {
            let g = gradient[i] * factor[0] + weight_decay * weight[i];
            let m = decay * momentum[i] + g;
            let updated = weight[i] - rate * if self.nesterov { g + decay * m } else { m };
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
                momentum: 0.9,
                weight_decay: 0.05,
                nesterov: false,
                rate_factor: 0.75,
                rounded: true,
                f32_gradient: false,
            };
            for result in 0..3 {
                cases.push_result(result, op, operands_with_momentum(&shape, activation(&shape)));
            }
            let op = Self {
                nesterov: true,
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

#[cfg(test)]
mod tests {
    use super::super::optimizers::tests::{array, assert_close, ten_steps};
    use super::*;

    const SGD: Sgd = Sgd {
        momentum: 0.9,
        weight_decay: 0.05,
        nesterov: false,
        rate_factor: 0.5,
        rounded: false,
        f32_gradient: false,
    };

    /// Figures of PyTorch 2.15 in f64.
    #[test]
    fn steps_are_those_of_pytorch() {
        let [weight, momentum] = ten_steps(SGD);
        assert_close(
            &weight,
            [
                0.835_640_776_682_820_4,
                -1.343_769_592_504_787_4,
                0.108_690_359_684_678_65,
            ],
        );
        assert_close(
            &momentum,
            [
                0.520_227_384_323_257_8,
                -0.791_152_179_099_779_1,
                -0.016_860_259_590_864_957,
            ],
        );
        let [weight, momentum] = ten_steps(Sgd {
            nesterov: true,
            ..SGD
        });
        assert_close(
            &weight,
            [
                0.789_558_418_591_724_5,
                -1.283_293_962_334_097_8,
                0.118_999_293_665_867_16,
            ],
        );
        assert_close(
            &momentum,
            [
                0.514_437_285_225_159_3,
                -0.774_151_933_877_940_8,
                -0.025_807_686_795_358_054,
            ],
        );
        let [weight, _] = ten_steps(Sgd { momentum: 0.0, ..SGD });
        assert_close(
            &weight,
            [
                0.937_886_890_468_618_3,
                -1.854_000_857_711_682,
                0.453_121_682_047_137_9,
            ],
        );
    }

    #[test]
    fn a_step_whose_factor_is_nan_changes_nothing() {
        let (weight, momentum, rate) = (array(&[2.0]), array(&[0.25]), array(&[0.1]));
        let nan = array(&[f64::NAN]);
        let op = Sgd { rounded: true, ..SGD };
        let results = op.eval(&[&weight, &nan, &momentum, &rate, &nan]).unwrap();
        let values: Vec<f64> = results.iter().map(|result| result.values()[0]).collect();
        assert_eq!(values, [2.0, 0.25, 2.0]);
    }
}
