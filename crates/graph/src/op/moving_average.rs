//! Moving averages of weights.

use std::fmt;

use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, positive, single};
use crate::dtype::DType;
use crate::tolerance::tolerance;

/// `(average f32, weight f32, factor [1] f32) → decay · average + (1 − decay) · weight`, in f32, as `timm.utils.ModelEmaV2` computes it. If
/// the factor is NaN, the average stays as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MovingAverage {
    /// Share of the average that stays.
    pub decay: f32,
}

impl Definition for MovingAverage {
    const NAME: &'static str = "moving_average";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.decay)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [average, weight, factor] = exactly(operands)?;
        expect("weight", weight, average)?;
        expect("factor", factor, &[1])?;
        one(average)
    }

    fn operand_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        3 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 2..3 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [average, weight, factor] = [0, 1, 2].map(|index: usize| operands[index].values());
        let decay = T::from_f32(self.decay);
        let is_skipped = factor[0].to_f64().is_nan();
        for (index, result) in results[0].values_mut().iter_mut().enumerate() {
            *result = if is_skipped {
                average[index]
            } else {
                decay * average[index] + (T::ONE - decay) * weight[index]
            };
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, channels], _| {
            let shape = [tokens, channels];
            let operands = vec![single(&shape), single(&shape), positive(&[1])];
            cases.push(Self { decay: 0.9 }, operands);
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        tolerance(DType::F32, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_those_of_timm() {
        let array = |values: &[f64]| Array::new([values.len()], values.to_vec()).unwrap();
        let op = MovingAverage { decay: 0.75 };
        let next = |average: &Array, factor: f64| {
            let results = op.eval(&[average, &array(&[2.0, 0.0]), &array(&[factor])]);
            results.unwrap().remove(0)
        };
        let first = next(&array(&[1.0, -4.0]), 0.5);
        assert_eq!(first.values(), [1.25, -3.0]);
        // ModelEmaV2 of timm 1.0.31 in f64.
        assert_eq!(next(&first, 0.5).values(), [1.4375, -2.25]);
        assert_eq!(next(&first, f64::NAN).values(), [1.25, -3.0]);
    }
}
