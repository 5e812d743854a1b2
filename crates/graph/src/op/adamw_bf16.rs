//! Updates of weights by AdamW with moments in bf16.

use std::fmt;

use super::adamw::{CASE, Step};
use super::operands::{count, exactly, expect};
use super::{AdamW, Definition, Locality, OpError, Shape, optimizers};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, positive, single};
use crate::compact_moments::{Noise, pack_bf16, unpack_bf16};
use crate::dtype::DType;

/// `(weight f32, gradient, moments f32, rates [4] f32, factor [1] f32) → (weight f32, moments f32, rounded?)`: a step of [`AdamW`] with two
/// moments in bf16 in each word of `moments` (see [`compact_moments`](crate::compact_moments)). The weight is updated by the moments before they are rounded.
///
/// `rates` are the learning rate, `1 − beta1^t`, `1 − beta2^t` and a number of the update, which determines the rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWBf16(pub AdamW);

/// Returns the shapes of the results for the operands `(weight, gradient, moments, rates, factor)`.
pub(super) fn shapes(operands: &[&[usize]], moments: &[usize], rounded: bool) -> Result<Vec<Shape>, OpError> {
    let [weight, gradient, found, rates, factor] = exactly(operands)?;
    expect("gradient", gradient, weight)?;
    expect("moments", found, moments)?;
    expect("rates", rates, &[4])?;
    expect("factor", factor, &[1])?;
    let mut shapes = vec![weight.to_vec(), moments.to_vec()];
    if rounded {
        shapes.push(weight.to_vec());
    }
    Ok(shapes)
}

/// Returns the operands of a case with words of moments of these bits.
pub(super) fn operands(shape: &[usize], gradient: Operand, moments: &[usize], bits: u32) -> Vec<Operand> {
    let moments = Operand {
        mean: f32::from_bits(bits),
        spread: 0.0,
        ..single(moments)
    };
    vec![single(shape), gradient, moments, positive(&[4]), positive(&[1])]
}

impl Definition for AdamWBf16 {
    const NAME: &'static str = "adamw_bf16";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        shapes(operands, operands.first().copied().unwrap_or(&[]), self.0.rounded)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::operand_dtype(index, self.0.f32_gradient, dtype)
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::result_dtype(index, 1, dtype)
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        15 * count(operands[0])
    }

    /// The rounding depends on the index of an element.
    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [weight, gradient, words, rates, factor] =
            [0, 1, 2, 3, 4].map(|index: usize| operands[index].values());
        let step = Step::new(&self.0, rates, factor[0]);
        for i in 0..weight.len() {
            let moments = unpack_bf16(words[i].to_f32()).map(T::from_f32);
            let (updated, word) = match step.update(weight[i], gradient[i], moments) {
                Some([updated, first, second]) => {
                    let noise = Noise::new(rates[3].to_f32(), i);
                    (
                        updated,
                        T::from_f32(pack_bf16([first, second].map(T::to_f32), noise)),
                    )
                }
                None => (weight[i], words[i]),
            };
            for (result, value) in results.iter_mut().zip([updated, word, updated]) {
                result.values_mut()[i] = value;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, channels], _| {
            let shape = [tokens, channels];
            // 0.25 and 0.5.
            let operands = |gradient| operands(&shape, gradient, &shape, 0x3E80_3F00);
            for result in 0..3 {
                cases.push_result(result, Self(CASE), operands(activation(&shape)));
            }
            let f32_gradient = AdamW {
                f32_gradient: true,
                ..CASE
            };
            cases.push_result(2, Self(f32_gradient), operands(single(&shape)));
        });
    }

    /// The first moment, which the words begin with, is off by at most the distance of two numbers in bf16.
    fn tolerance(&self, index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        let rounding = if index == 1 { 2.0_f64.powi(-7) } else { 0.0 };
        rounding + optimizers::tolerance_of(index, 1, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs steps with a gradient of random sign and of changing size. Returns the weights and the moments, and those with moments in f64.
    fn run(steps: i32) -> [Vec<[f64; 3]>; 2] {
        const ELEMENTS: usize = 300;
        let op = AdamW {
            beta2: 0.999,
            rounded: false,
            ..CASE
        };
        let array = |values: Vec<f64>| Array::new([values.len()], values).unwrap();
        let mut exact = [0; 3].map(|_| array(vec![0.0; ELEMENTS]));
        let mut compact = [0; 2].map(|_| array(vec![0.0; ELEMENTS]));
        for step in 1..=steps {
            let size = 1.0 + f64::from(step % 7) / 3.0;
            let gradient = (0..ELEMENTS).map(|i| {
                let sign = f64::from((step * 31 + i as i32 * 17) % 5 - 2) / 2.0;
                size * (0.3 + sign) * (1.0 + i as f64 / 100.0)
            });
            let gradient = array(gradient.collect());
            let correction = |beta: f32| 1.0 - f64::from(beta).powi(step);
            let rates = [1e-3, correction(op.beta1), correction(op.beta2), f64::from(step)];
            let factor = array(vec![1.0]);
            let [weight, first, second] = &exact;
            let three = array(rates[..3].to_vec());
            let operands = [weight, &gradient, first, second, &three, &factor];
            exact = op.eval(&operands).unwrap().try_into().unwrap();
            let four = array(rates.to_vec());
            let operands = [&compact[0], &gradient, &compact[1], &four, &factor];
            compact = AdamWBf16(op).eval(&operands).unwrap().try_into().unwrap();
        }
        let exact = (0..ELEMENTS).map(|i| [0, 1, 2].map(|of: usize| exact[of].values()[i]));
        let compact = (0..ELEMENTS).map(|i| {
            let [first, second] = unpack_bf16(compact[1].values()[i].to_f32()).map(f64::from);
            [compact[0].values()[i], first, second]
        });
        [compact.collect(), exact.collect()]
    }

    /// A second moment changes by a thousandth of itself in a step, and numbers have distances `d` of 1/180 on average. Then random rounding has a
    /// stationary variance of `d / 2`, a standard deviation of 5 %. Rounding to nearest would keep second moments below a half of their size.
    #[test]
    fn moments_and_weights_follow_those_in_f64() {
        let [compact, exact] = run(2000);
        let errors = compact.iter().zip(&exact);
        let errors: Vec<f64> = errors.map(|(found, exact)| found[2] / exact[2] - 1.0).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let deviation = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
        assert!(mean.abs() < 6.0 * 0.05 / 300.0_f64.sqrt(), "{mean}");
        assert!(deviation < 0.08, "{deviation}");
        for (index, (found, exact)) in compact.iter().zip(&exact).enumerate() {
            // The rate has half the relative error of the second moment.
            let bound = 6.0 * 0.025 * exact[0].abs();
            assert!(
                (found[0] - exact[0]).abs() < bound,
                "{index}: {found:?}, expected {exact:?}"
            );
        }
    }

    #[test]
    fn a_step_whose_factor_is_nan_changes_nothing() {
        let one = |value: f64| Array::new([1], vec![value]).unwrap();
        let word = f64::from(f32::from_bits(0x3E80_3F00));
        let rates = Array::new([4], vec![0.1, 0.1, 0.01, 1.0]).unwrap();
        let operands = [&one(2.0), &one(f64::NAN), &one(word), &rates, &one(f64::NAN)];
        let results = AdamWBf16(CASE).eval(&operands).unwrap();
        let values: Vec<f64> = results.iter().map(|result| result.values()[0]).collect();
        assert_eq!(values, [2.0, word, 2.0]);
    }
}
