//! The norm of all gradients together.

use std::fmt;

use super::operands::count;
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::dtype::DType;
use crate::tolerance::tolerance;

/// Added to the norm before dividing by it, as PyTorch's `clip_grad_norm_` does.
pub const CLIP_EPSILON: f32 = 1e-6;

/// Elements that one partial sum adds. Implementations add the partial sums in order, so that equal gradients have equal norms.
pub const L2_NORM_CHUNK: usize = 4096;

/// `(scale [1] f32, gradients …) → (norm [1,1] f32, factor [1] f32)`. The norm is `scale · √(Σ gradient²)` over the elements of all
/// gradients. The factor is `scale · min(1, maximum / (norm + 1e-6))`, or `scale` without a maximum: an optimiser multiplies the gradients by
/// it, as `clip_grad_norm_` of PyTorch does. The factor is NaN if the norm is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct L2Norm {
    /// Maximum of the norm.
    pub maximum: Option<f32>,
    /// True if the gradients are in f32 in plans of any dtype, as those of [`Accumulate`](super::Accumulate) are.
    pub f32_gradients: bool,
}

impl Definition for L2Norm {
    const NAME: &'static str = "l2_norm";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.maximum {
            Some(maximum) => write!(f, " ≤ {maximum}"),
            None => Ok(()),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        match operands {
            [[1], _, ..] => Ok(vec![vec![1, 1], vec![1]]),
            [scale, _, ..] => Err(OpError::layout("the scale", scale, "[1]")),
            _ => Err("takes a scale and at least one gradient".into()),
        }
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 || self.f32_gradients {
            DType::F32
        } else {
            dtype
        }
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        operands[1..].iter().map(|gradient| 2 * count(gradient)).sum()
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let scale = operands[0].values()[0];
        let chunks = operands[1..]
            .iter()
            .flat_map(|gradient| gradient.values().chunks(L2_NORM_CHUNK));
        let sum: T = chunks.map(|chunk| chunk.iter().map(|&g| g * g).sum::<T>()).sum();
        let norm = scale * sum.sqrt();
        let clipped = |maximum| T::from_f32(maximum) / (norm + T::from_f32(CLIP_EPSILON));
        let factor = match self.maximum.map(clipped) {
            _ if !norm.to_f64().is_finite() => T::from_f64(f64::NAN),
            Some(factor) if factor < T::ONE => factor,
            _ => T::ONE,
        };
        results[0].values_mut()[0] = norm;
        results[1].values_mut()[0] = scale * factor;
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            let operands = || {
                vec![
                    single(&[1]),
                    activation(&shape),
                    activation(&shape[1..]),
                    activation(&[3]),
                ]
            };
            for maximum in [None, Some(0.5)] {
                let op = Self {
                    maximum,
                    f32_gradients: false,
                };
                cases.push(op, operands());
                cases.push_result(1, op, operands());
            }
            let op = Self {
                maximum: None,
                f32_gradients: true,
            };
            cases.push(op, vec![single(&[1]), single(&shape), single(&[3])]);
        });
    }

    /// All terms are positive, so the sum has the relative error of its terms.
    fn tolerance(&self, _index: usize, operands: &[&Array], _dtype: DType) -> f64 {
        let elements = operands[1..].iter().map(|gradient| gradient.values().len()).sum();
        tolerance(DType::F32, elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_clipped_as_pytorch_clips_them() {
        let one = |values: &[f64]| Array::new([values.len()], values.to_vec()).unwrap();
        let gradients = [one(&[0.5]), one(&[3.0, 0.0]), one(&[-4.0])];
        let gradients: Vec<&Array> = gradients.iter().collect();
        let op = |maximum| L2Norm {
            maximum,
            f32_gradients: false,
        };
        let norm = |maximum| {
            let results = op(maximum).eval(&gradients).unwrap();
            [results[0].values()[0], results[1].values()[0]]
        };
        assert_eq!(norm(None), [2.5, 0.5]);
        assert_eq!(norm(Some(3.0)), [2.5, 0.5]);
        let [_, factor] = norm(Some(1.0));
        assert!((factor - 0.5 * 1.0 / (2.5 + f64::from(CLIP_EPSILON))).abs() < 1e-15);
        for gradient in [f64::NAN, f64::INFINITY] {
            for maximum in [None, Some(1.0)] {
                let results = op(maximum).eval(&[&one(&[1.0]), &one(&[gradient])]).unwrap();
                assert!(!results[0].values()[0].is_finite());
                assert!(results[1].values()[0].is_nan());
            }
        }
    }
}
