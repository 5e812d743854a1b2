//! Derivatives of losses.

use std::fmt;

use super::loss::{LossKind, images};
use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, probabilities, single};
use crate::dtype::DType;
use crate::softmax::softmax;
use crate::tolerance::{narrow, tolerance};

/// `(logits [B,C], targets [B,C] f32, gradient [B,1] f32) → [B,C]`: the gradient of each image's [`Loss`](super::Loss) with respect to its
/// logits, times `gradient`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossBackward(pub LossKind);

/// Writes the derivative of an image's loss with respect to its logits.
pub(super) fn of_image<T: Real>(kind: LossKind, logits: &[T], targets: &[T], derivative: &mut [T]) {
    let classes = T::from_f64(logits.len() as f64);
    derivative.copy_from_slice(logits);
    match kind {
        LossKind::CrossEntropy => {
            let total: T = targets.iter().copied().sum();
            softmax(derivative);
            for (d, &t) in derivative.iter_mut().zip(targets) {
                *d = *d * total - t;
            }
        }
        LossKind::BinaryCrossEntropy => {
            for (d, &t) in derivative.iter_mut().zip(targets) {
                *d = (T::ONE / (T::ONE + (-*d).exp()) - t) / classes;
            }
        }
        LossKind::MeanSquaredError => {
            for (d, &t) in derivative.iter_mut().zip(targets) {
                *d = (*d - t) * T::from_f32(2.0) / classes;
            }
        }
    }
}

/// Tolerance of the derivatives of a loss with respect to logits. Probabilities and targets may cancel: a result may be smaller than both.
/// Subnormal results in f16 are off by up to half of their spacing, 2^-24.
pub(super) fn tolerance_of_derivatives(op: &impl Definition, operands: &[&Array], dtype: DType) -> f64 {
    let classes = operands[0].shape().last().copied().unwrap_or(1);
    let results = op.eval(operands).unwrap_or_default();
    let values = results.iter().flat_map(Array::values);
    let largest = values.fold(0.0_f64, |most, value| most.max(value.abs()));
    let spacing = if dtype == DType::F16 && largest > 0.0 {
        2.0_f64.powi(-25) / largest
    } else {
        0.0
    };
    narrow(dtype).max(spacing) + 8.0 * tolerance(DType::F32, classes)
}

impl Definition for LossBackward {
    const NAME: &'static str = "loss_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.0)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [logits, targets, gradient] = exactly(operands)?;
        let batch = images(logits, targets)?;
        expect("gradient", gradient, &[batch, 1])?;
        one(logits)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    /// Softmax, and the product and difference with the target.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        7 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, classes] = operands[0].extents();
        let [logits, targets] = [0, 1].map(|index: usize| operands[index].values().chunks_exact(classes));
        let images = logits.zip(targets).zip(operands[2].values());
        for (d, ((logits, targets), &gradient)) in
            results[0].values_mut().chunks_exact_mut(classes).zip(images)
        {
            of_image(self.0, logits, targets, d);
            d.iter_mut().for_each(|d| *d *= gradient);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            for kind in LossKind::ALL {
                let shape = [batch * tokens, channels];
                let operands = vec![activation(&shape), probabilities(&shape), single(&[shape[0], 1])];
                cases.push(Self(kind), operands);
            }
        });
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        tolerance_of_derivatives(self, operands, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of PyTorch 2.11 in f64.
    #[test]
    fn derivatives_are_those_of_pytorch() {
        let logits = Array::new([2, 3], vec![1.0, -2.0, 0.5, 30.0, 0.0, -30.0]).unwrap();
        let targets = Array::new([2, 3], vec![0.7, 0.1, 0.2, 0.0, 0.5, 0.5]).unwrap();
        let gradient = Array::new([2, 1], vec![1.0, 0.5]).unwrap();
        let expected = [
            (
                LossKind::CrossEntropy,
                [
                    -0.096_251_103_851,
                    -0.069_941_112_430,
                    0.166_192_216_282,
                    1.0,
                    -0.5,
                    -0.5,
                ],
            ),
            (
                LossKind::BinaryCrossEntropy,
                [
                    0.010_352_859_543,
                    0.006_400_974_007,
                    0.140_819_777_067,
                    1.0 / 3.0,
                    0.0,
                    -1.0 / 6.0,
                ],
            ),
            (
                LossKind::MeanSquaredError,
                [0.2, -1.4, 0.2, 20.0, -1.0 / 3.0, -61.0 / 3.0],
            ),
        ];
        for (kind, expected) in expected {
            let result = LossBackward(kind).eval(&[&logits, &targets, &gradient]).unwrap();
            for (i, (d, expected)) in result[0].values().iter().zip(expected).enumerate() {
                let expected = if i < 3 { expected } else { 0.5 * expected };
                assert!((d - expected).abs() < 1e-9, "{kind}: {d}, expected {expected}");
            }
        }
    }
}
