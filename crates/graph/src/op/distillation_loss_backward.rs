//! Derivatives of losses that learn from a teacher.

use std::fmt;

use super::distillation_loss::{DistillationKind, DistillationLoss, largest};
use super::loss_backward::of_image;
use super::operands::{count, expect};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, probabilities, single};
use crate::dtype::DType;
use crate::softmax::softmax;
use crate::tolerance::{narrow, tolerance};

/// `(logits [B,C], distilled [B,C], targets [B,C] f32, teacher [B,C] f32, gradient [B,1] f32) → (d_logits [B,C], d_distilled [B,C])`: the
/// gradients of each image's [`DistillationLoss`], times `gradient`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistillationLossBackward(pub DistillationLoss);

impl DistillationLossBackward {
    /// Writes the derivative of the comparison with the teacher, times `alpha`.
    fn of_teacher<T: Real>(&self, logits: &[T], teacher: &[T], derivative: &mut [T]) {
        let DistillationLoss {
            kind,
            alpha,
            temperature,
            ..
        } = self.0;
        let (alpha, temperature) = (T::from_f32(alpha), T::from_f32(temperature));
        let mut target = vec![T::ZERO; logits.len()];
        let factor = match kind {
            DistillationKind::Soft => {
                for (values, logits) in [(&mut *derivative, logits), (&mut target, teacher)] {
                    values.copy_from_slice(logits);
                    values.iter_mut().for_each(|value| *value /= temperature);
                    softmax(values);
                }
                alpha * temperature / T::from_f64(logits.len() as f64)
            }
            DistillationKind::Hard => {
                derivative.copy_from_slice(logits);
                softmax(derivative);
                target[largest(teacher)] = T::ONE;
                alpha
            }
        };
        for (d, target) in derivative.iter_mut().zip(target) {
            *d = factor * (*d - target);
        }
    }
}

impl Definition for DistillationLossBackward {
    const NAME: &'static str = "distillation_loss_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [forward @ .., gradient] = operands else {
            return Err(OpError::Missing("gradient"));
        };
        let [batch, classes] = self.0.extents(forward)?;
        expect("gradient", gradient, &[batch, 1])?;
        Ok(vec![vec![batch, classes]; 2])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index < 2 { dtype } else { DType::F32 }
    }

    /// Three softmaxes, and products and differences with the targets.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        20 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, classes] = operands[0].extents();
        let share = T::ONE - T::from_f32(self.0.alpha);
        for (image, &gradient) in operands[4].values().iter().enumerate() {
            let row = image * classes..(image + 1) * classes;
            let [logits, distilled, targets, teacher] =
                [0, 1, 2, 3].map(|index: usize| &operands[index].values()[row.clone()]);
            let d_logits = &mut results[0].values_mut()[row.clone()];
            of_image(self.0.base, logits, targets, d_logits);
            d_logits.iter_mut().for_each(|d| *d *= share * gradient);
            let d_distilled = &mut results[1].values_mut()[row];
            self.of_teacher(distilled, teacher, d_distilled);
            d_distilled.iter_mut().for_each(|d| *d *= gradient);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            for op in DistillationLoss::forms() {
                let shape = [batch * tokens, channels];
                let operands = || {
                    vec![
                        activation(&shape),
                        activation(&shape),
                        probabilities(&shape),
                        single(&shape),
                        single(&[shape[0], 1]),
                    ]
                };
                for result in 0..2 {
                    cases.push_result(result, Self(op), operands());
                }
            }
        });
    }

    /// Probabilities of student and teacher may cancel, the more the higher the temperature. Subnormal results in f16 are off by up to half
    /// of their spacing, 2^-24, relative to their root mean square.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let [_, classes] = operands[0].extents();
        let results = self.eval(operands).unwrap_or_default();
        let values = results.get(index).map_or(&[][..], Array::values);
        let squares: f64 = values.iter().map(|value| value * value).sum();
        let size = (squares / values.len().max(1) as f64).sqrt();
        let spacing = if dtype == DType::F16 && size > 0.0 {
            2.0_f64.powi(-25) / size
        } else {
            0.0
        };
        let cancelled = if index == 1 {
            f64::from(self.0.temperature).max(1.0)
        } else {
            1.0
        };
        narrow(dtype).max(spacing) + 8.0 * cancelled * tolerance(DType::F32, classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::LossKind;

    fn array(shape: [usize; 2], values: &[f64]) -> Array {
        Array::new(shape, values.to_vec()).unwrap()
    }

    /// DeiT's `DistillationLoss` with timm's `SoftTargetCrossEntropy`, in PyTorch 2.15 and f64: loss, and gradients of both logits.
    #[test]
    fn losses_and_derivatives_are_those_of_deit() {
        let shape = [2, 3];
        let operands = [
            array(shape, &[1.0, -2.0, 0.5, 3.0, 0.0, -1.0]),
            array(shape, &[0.25, 1.5, -0.75, 2.0, -3.0, 0.5]),
            array(shape, &[0.7, 0.1, 0.2, 0.0, 0.5, 0.5]),
            array(shape, &[-1.0, 2.5, 0.75, 0.5, 1.25, -2.0]),
            // The gradient of the mean.
            array([2, 1], &[0.5; 2]),
        ];
        let soft = DistillationLoss {
            base: LossKind::CrossEntropy,
            kind: DistillationKind::Soft,
            alpha: 0.25,
            temperature: 3.0,
        };
        let hard = DistillationLoss {
            kind: DistillationKind::Hard,
            alpha: 0.5,
            ..soft
        };
        let expected = [
            (
                soft,
                1.861_354_603_383_082_1,
                [
                    [
                        -0.036_094_163_944_3,
                        -0.026_227_917_161_4,
                        0.062_322_081_105_7,
                        0.351_089_831_954,
                        -0.170_020_266_533,
                        -0.181_069_565_42,
                    ],
                    [
                        0.017_836_683_538_5,
                        -0.008_223_803_295_97,
                        -0.009_612_880_242_54,
                        0.023_642_976_696_3,
                        -0.045_888_474_694_8,
                        0.022_245_497_998_4,
                    ],
                ],
            ),
            (
                hard,
                2.502_015_087_295_087_7,
                [
                    [
                        -0.024_062_775_962_8,
                        -0.017_485_278_107_6,
                        0.041_548_054_070_5,
                        0.234_059_887_969,
                        -0.113_346_844_356,
                        -0.120_713_043_614,
                    ],
                    [
                        0.051_459_150_999_4,
                        -0.070_389_914_712_2,
                        0.018_930_763_712_8,
                        0.203_273_829_565,
                        -0.248_630_351_71,
                        0.045_356_522_144_9,
                    ],
                ],
            ),
        ];
        let operands: Vec<&Array> = operands.iter().collect();
        for (op, loss, gradients) in expected {
            let losses = op.eval(&operands[..4]).unwrap();
            let mean = losses[0].values().iter().sum::<f64>() / 2.0;
            assert!((mean - loss).abs() < 1e-12, "{op}: {mean}, expected {loss}");
            let results = DistillationLossBackward(op).eval(&operands).unwrap();
            for (result, expected) in results.iter().zip(gradients) {
                for (found, expected) in result.values().iter().zip(expected) {
                    assert!(
                        (found - expected).abs() < 1e-12,
                        "{op}: {found}, expected {expected}"
                    );
                }
            }
        }
    }
}
