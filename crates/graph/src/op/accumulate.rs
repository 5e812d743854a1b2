//! Sums of the gradients of several runs.

use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, positive, single};
use crate::dtype::DType;
use crate::tolerance::tolerance;

/// `(sum f32, gradient, keep [1] f32) → keep · sum + gradient`, in f32. The result is the gradient if `keep` is 0, even if the sum has NaN.
///
/// The sum is a state, to which each run writes the result. The first run of a sum has a `keep` of 0, the others have 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accumulate;

impl Definition for Accumulate {
    const NAME: &'static str = "accumulate";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [sum, gradient, keep] = exactly(operands)?;
        expect("gradient", gradient, sum)?;
        expect("keep", keep, &[1])?;
        one(sum)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 1 { dtype } else { DType::F32 }
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        2 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 2..3 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [sum, gradient, keep] = [0, 1, 2].map(|index: usize| operands[index].values());
        for (index, result) in results[0].values_mut().iter_mut().enumerate() {
            let kept = if keep[0] == T::ZERO {
                T::ZERO
            } else {
                keep[0] * sum[index]
            };
            *result = kept + gradient[index];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, channels], _| {
            let shape = [tokens, channels];
            cases.push(Self, vec![single(&shape), activation(&shape), positive(&[1])]);
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
    fn a_new_sum_discards_the_old_one() {
        let array = |values: &[f64]| Array::new([values.len()], values.to_vec()).unwrap();
        let (sum, gradient) = (array(&[1.0, f64::NAN]), array(&[0.5, 2.0]));
        let next = |keep: f64| {
            let results = Accumulate.eval(&[&sum, &gradient, &array(&[keep])]).unwrap();
            results[0].values().to_vec()
        };
        assert_eq!(next(0.0), [0.5, 2.0]);
        let kept = next(1.0);
        assert!(kept[0] == 1.5 && kept[1].is_nan());
    }
}
