//! Updates of weights by AdamW with moments in 8 bits.

use std::fmt;

use super::adamw::{CASE, Step};
use super::operands::count;
use super::{AdamW, Definition, Locality, OpError, Shape, adamw_bf16, optimizers};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::compact_moments::{BLOCK, BLOCK_WORDS, pack_int8, unpack_int8};
use crate::dtype::DType;

/// `(weight f32, gradient, moments [blocks, 130] f32, rates [4] f32, factor [1] f32) → (weight f32, moments f32, rounded?)`: a step of
/// [`AdamW`] with moments in 8 bits, in blocks of 256 elements that share two scales (see [`compact_moments`](crate::compact_moments)). The weight is updated by
/// the moments before they are rounded.
///
/// `rates` are the learning rate, `1 − beta1^t`, `1 − beta2^t` and a number of the update, which determines the rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWInt8(pub AdamW);

fn blocks(weight: &[usize]) -> [usize; 2] {
    [weight.iter().product::<usize>().div_ceil(BLOCK), BLOCK_WORDS]
}

impl Definition for AdamWInt8 {
    const NAME: &'static str = "adamw_int8";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let moments = blocks(operands.first().copied().unwrap_or(&[]));
        adamw_bf16::shapes(operands, &moments, self.0.rounded)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::operand_dtype(index, self.0.f32_gradient, dtype)
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        optimizers::result_dtype(index, 1, dtype)
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        25 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [weight, gradient, words, rates, factor] =
            [0, 1, 2, 3, 4].map(|index: usize| operands[index].values());
        let step = Step::new(&self.0, rates, factor[0]);
        for (block, words) in words.chunks_exact(BLOCK_WORDS).enumerate() {
            let start = block * BLOCK;
            let len = BLOCK.min(weight.len() - start);
            let words: Vec<f32> = words.iter().map(|&word| word.to_f32()).collect();
            let mut moments = vec![[0.0; 2]; BLOCK];
            unpack_int8(&words, |index, of| moments[index] = of);
            let mut is_updated = true;
            for (index, moments) in moments[..len].iter_mut().enumerate() {
                let at = start + index;
                let updated = step.update(weight[at], gradient[at], moments.map(T::from_f32));
                is_updated &= updated.is_some();
                let [updated, first, second] = updated.unwrap_or([weight[at], T::ZERO, T::ZERO]);
                *moments = [first, second].map(T::to_f32);
                for result in [0, 2] {
                    if let Some(result) = results.get_mut(result) {
                        result.values_mut()[at] = updated;
                    }
                }
            }
            let mut packed = words;
            if is_updated {
                pack_int8(&moments[..len], rates[3].to_f32(), start, &mut packed);
            }
            let results = &mut results[1].values_mut()[block * BLOCK_WORDS..][..BLOCK_WORDS];
            for (result, word) in results.iter_mut().zip(packed) {
                *result = T::from_f32(word);
            }
        }
    }

    /// The words are not compared: two neighbouring codes are numbers of different size.
    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, channels], _| {
            let shape = [tokens, channels];
            // Scales of 0.75, and codes of 0x10, 0x20, 0x40 and 0x3F.
            let operands = |gradient| adamw_bf16::operands(&shape, gradient, &blocks(&shape), 0x3F40_2010);
            for result in [0, 2] {
                cases.push_result(result, Self(CASE), operands(activation(&shape)));
            }
            let f32_gradient = AdamW {
                f32_gradient: true,
                ..CASE
            };
            cases.push_result(2, Self(f32_gradient), operands(single(&shape)));
        });
    }

    fn tolerance(&self, index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        optimizers::tolerance_of(index, 1, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradients have sizes from 1 to 100 within a block.
    #[test]
    fn weights_follow_those_with_moments_in_f64() {
        const ELEMENTS: usize = 300;
        let op = AdamW {
            beta2: 0.999,
            rounded: false,
            ..CASE
        };
        let array = |shape: &[usize], values: Vec<f64>| Array::new(shape, values).unwrap();
        let flat = |values: Vec<f64>| array(&[values.len()], values);
        let mut exact = [0; 3].map(|_| flat(vec![0.0; ELEMENTS]));
        let mut weight = flat(vec![0.0; ELEMENTS]);
        let mut moments = array(&[2, BLOCK_WORDS], vec![0.0; 2 * BLOCK_WORDS]);
        for step in 1..=1000 {
            let gradient = (0..ELEMENTS).map(|i| {
                let sign = f64::from((step * 31 + i as i32 * 17) % 5 - 2) / 2.0;
                (0.3 + sign) * 10.0_f64.powf((i % 50) as f64 / 25.0)
            });
            let gradient = flat(gradient.collect());
            let correction = |beta: f32| 1.0 - f64::from(beta).powi(step);
            let rates = [1e-3, correction(op.beta1), correction(op.beta2), f64::from(step)];
            let factor = flat(vec![1.0]);
            let three = flat(rates[..3].to_vec());
            let operands = [&exact[0], &gradient, &exact[1], &exact[2], &three, &factor];
            exact = op.eval(&operands).unwrap().try_into().unwrap();
            let four = flat(rates.to_vec());
            let operands = [&weight, &gradient, &moments, &four, &factor];
            [weight, moments] = AdamWInt8(op).eval(&operands).unwrap().try_into().unwrap();
        }
        let size = exact[0].values().iter().map(|w| w.abs()).fold(0.0, f64::max);
        let errors = weight.values().iter().zip(exact[0].values());
        let errors: Vec<f64> = errors.map(|(found, exact)| (found - exact) / size).collect();
        let mean = |of: &dyn Fn(f64) -> f64| errors.iter().map(|&e| of(e)).sum::<f64>() / ELEMENTS as f64;
        // Levels of second moments have distances `d` of 1/63 to 1/6, where a second moment is 1e-4 of the block's largest. Random rounding
        // then has a variance of `d / 2`, which changes the rate by half of its root: 5 to 14 %.
        assert!(mean(&|e| e * e).sqrt() < 0.14, "{}", mean(&|e| e * e).sqrt());
        assert!(mean(&|e| e).abs() < 0.03, "{}", mean(&|e| e));
    }

    #[test]
    fn a_step_whose_factor_is_nan_changes_nothing() {
        let words: Vec<f64> = (0..BLOCK_WORDS).map(|word| 1.0 / (word + 1) as f64).collect();
        let words: Vec<f64> = words.into_iter().map(|word| f64::from(word as f32)).collect();
        let array = |shape: &[usize], values: &[f64]| Array::new(shape, values.to_vec()).unwrap();
        let operands = [
            &array(&[2], &[2.0, 3.0]),
            &array(&[2], &[f64::NAN, 1.0]),
            &array(&[1, BLOCK_WORDS], &words),
            &array(&[4], &[0.1, 0.1, 0.01, 1.0]),
            &array(&[1], &[f64::NAN]),
        ];
        let results = AdamWInt8(CASE).eval(&operands).unwrap();
        assert_eq!(results[0].values(), [2.0, 3.0]);
        assert_eq!(results[1].values(), words);
        assert_eq!(results[2].values(), [2.0, 3.0]);
    }
}
