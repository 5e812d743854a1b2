//! Derivatives of losses of pairs of images and texts.

use std::fmt;

use super::contrastive_loss::{ContrastiveKind, Logits};
use super::operands::{count, expect};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, single};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(similarity [B,B], log_scale [1] f32, bias [1] f32 in Sigmoid, gradient [B,1] f32) → (d_similarity [B,B], d_log_scale [1], d_bias [1] in
/// Sigmoid)`: the gradients of the [`ContrastiveLoss`](super::ContrastiveLoss) of each pair, times `gradient`. Sums over the
/// logits have a fixed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContrastiveLossBackward(pub ContrastiveKind);

/// Gradients with respect to the logits.
struct Derivative<'a, T> {
    kind: ContrastiveKind,
    logits: Logits<'a, T>,
    gradient: &'a [T],
    /// `ln Σ e^logit` of the rows and of the columns. Empty in Sigmoid.
    log_sums: (Vec<T>, Vec<T>),
}

impl<'a, T: Real> Derivative<'a, T> {
    fn new(kind: ContrastiveKind, operands: &[&'a Array<T>]) -> Self {
        let logits = Logits::new(kind, operands);
        Self {
            kind,
            gradient: operands[operands.len() - 1].values(),
            log_sums: match kind {
                ContrastiveKind::InfoNce => logits.log_sums(),
                ContrastiveKind::Sigmoid => Default::default(),
            },
            logits,
        }
    }

    /// Returns the two terms of the gradient of a logit: that of all texts, and that of the image's own text.
    fn terms(&self, image: usize, text: usize) -> [T; 2] {
        let z = self.logits.at(image, text);
        let is_pair = image == text;
        match self.kind {
            ContrastiveKind::InfoNce => {
                let of_row = (z - self.log_sums.0[image]).exp() * self.gradient[image];
                let of_column = (z - self.log_sums.1[text]).exp() * self.gradient[text];
                let own = if is_pair { -self.gradient[image] } else { T::ZERO };
                [(of_row + of_column) / T::from_f32(2.0), own]
            }
            ContrastiveKind::Sigmoid => {
                let sign = if is_pair { -T::ONE } else { T::ONE };
                let probability = T::ONE / (T::ONE + (-sign * z).exp());
                [sign * probability * self.gradient[image], T::ZERO]
            }
        }
    }

    /// Calls `visit` with image, text and the terms of the logit's gradient.
    fn for_each(&self, mut visit: impl FnMut(usize, usize, [T; 2])) {
        for image in 0..self.logits.pairs {
            for text in 0..self.logits.pairs {
                visit(image, text, self.terms(image, text));
            }
        }
    }
}

impl Definition for ContrastiveLossBackward {
    const NAME: &'static str = "contrastive_loss_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.0)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [forward @ .., gradient] = operands else {
            return Err(OpError::Missing("gradient"));
        };
        let pairs = self.0.pairs(forward)?;
        expect("gradient", gradient, &[pairs, 1])?;
        Ok(forward.iter().map(|operand| operand.to_vec()).collect())
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    /// The logits and their exponentials twice, and the sums of the gradients.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        25 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let derivative = Derivative::new(self.0, operands);
        let logits = &derivative.logits;
        let (mut of_scale, mut of_bias) = (T::ZERO, T::ZERO);
        derivative.for_each(|image, text, [others, own]| {
            let d = others + own;
            results[0].values_mut()[image * logits.pairs + text] = logits.scale * d;
            of_scale += d * logits.scaled(image, text);
            of_bias += d;
        });
        for (result, sum) in results[1..].iter_mut().zip([of_scale, of_bias]) {
            result.values_mut()[0] = sum;
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, _], _| {
            for kind in ContrastiveKind::ALL {
                for result in 0..if kind.has_bias() { 3 } else { 2 } {
                    let mut operands = kind.operands(tokens);
                    operands.push(single(&[tokens, 1]));
                    cases.push_result(result, Self(kind), operands);
                }
            }
        });
    }

    /// The gradients of the scale and of the bias sum terms that cancel, so their bounds are relative to the terms. Subnormal results in f16
    /// are off by up to half of their spacing, 2^-24, relative to their root mean square.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let [pairs, _] = operands[0].extents();
        let single = 8.0 * tolerance(DType::F32, pairs);
        let results = self.eval(operands).unwrap_or_default();
        let values = results.get(index).map_or(&[][..], Array::values);
        let largest = values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let squares: f64 = values.iter().map(|value| value * value).sum();
        let size = (squares / values.len().max(1) as f64).sqrt();
        let spacing = if dtype == DType::F16 && size > 0.0 {
            2.0_f64.powi(-25) / size
        } else {
            0.0
        };
        let narrow = narrow(dtype).max(spacing);
        if index == 0 {
            return narrow + single;
        }
        let derivative = Derivative::new(self.0, operands);
        let mut terms = 0.0;
        derivative.for_each(|image, text, [others, own]| {
            let factor = match index {
                1 => derivative.logits.scaled(image, text).abs(),
                _ => 1.0,
            };
            terms += factor * (others.abs() + own.abs());
        });
        narrow
            + if largest > 0.0 {
                single * terms / largest
            } else {
                single
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::ContrastiveLoss;

    const SIMILARITY: [f64; 9] = [0.75, -0.25, 0.5, 0.0, 0.375, -0.5, 0.25, 0.625, -0.125];

    fn array(shape: &[usize], values: &[f64]) -> Array {
        Array::new(shape, values.to_vec()).unwrap()
    }

    /// `ClipLoss` and `SigLipLoss` of open_clip 3.3 in f64: loss, gradients of the similarities, of the scale's logarithm, and of the bias.
    #[test]
    fn losses_and_derivatives_are_those_of_open_clip() {
        let expected = [
            (
                ContrastiveKind::InfoNce,
                1.224_975_453_907_220_4,
                [
                    -0.295_523_281_683,
                    0.030_975_114_261_9,
                    0.676_616_037_148,
                    0.153_310_788_274,
                    -0.555_917_318_467,
                    0.036_342_432_356_2,
                    0.198_416_329_826,
                    0.830_194_810_145,
                    -1.074_414_911_86,
                ],
                &[0.585_059_270_920_922_2][..],
            ),
            (
                ContrastiveKind::Sigmoid,
                1.939_311_748_560_964_6,
                [
                    -0.286_705_535_363,
                    0.099_227_193_737_9,
                    0.652_679_802_435,
                    0.212_242_547_426,
                    -0.637_145_162_555,
                    0.043_630_196_317,
                    0.404_992_727_425,
                    0.772_605_384_706,
                    -1.016_788_456_9,
                ],
                &[0.536_984_521_554_398_2, 0.070_118_810_732_647_64][..],
            ),
        ];
        for (kind, loss, of_similarity, of_scalars) in expected {
            let mut operands = vec![array(&[3, 3], &SIMILARITY), array(&[1], &[1.25])];
            operands.extend(kind.has_bias().then(|| array(&[1], &[-1.5])));
            let forward: Vec<&Array> = operands.iter().collect();
            let losses = ContrastiveLoss(kind).eval(&forward).unwrap();
            let mean = losses[0].values().iter().sum::<f64>() / 3.0;
            assert!((mean - loss).abs() < 1e-12, "{kind}: {mean}, expected {loss}");
            let gradient = array(&[3, 1], &[1.0 / 3.0; 3]);
            let operands: Vec<&Array> = forward.into_iter().chain([&gradient]).collect();
            let results = ContrastiveLossBackward(kind).eval(&operands).unwrap();
            let found = results.iter().flat_map(Array::values);
            let expected = of_similarity.iter().chain(of_scalars);
            assert_eq!(results.len(), 1 + of_scalars.len());
            for (found, expected) in found.zip(expected) {
                assert!(
                    (found - expected).abs() < 1e-11,
                    "{kind}: {found}, expected {expected}"
                );
            }
        }
    }

    /// Different gradients for each pair, which a mean does not show.
    #[test]
    fn derivatives_are_finite_differences() {
        const STEP: f64 = 1e-5;
        let weights = [0.5, -1.0, 2.0];
        for kind in ContrastiveKind::ALL {
            let mut operands = vec![array(&[3, 3], &SIMILARITY), array(&[1], &[0.75])];
            operands.extend(kind.has_bias().then(|| array(&[1], &[-0.25])));
            let loss = |operands: &[Array]| -> f64 {
                let losses = ContrastiveLoss(kind)
                    .eval(&operands.iter().collect::<Vec<_>>())
                    .unwrap();
                losses[0]
                    .values()
                    .iter()
                    .zip(weights)
                    .map(|(loss, weight)| loss * weight)
                    .sum()
            };
            let gradient = array(&[3, 1], &weights);
            let all: Vec<&Array> = operands.iter().chain([&gradient]).collect();
            let results = ContrastiveLossBackward(kind).eval(&all).unwrap();
            for (index, result) in results.iter().enumerate() {
                for (element, found) in result.values().iter().enumerate() {
                    let [above, below] = [STEP, -STEP].map(|step| {
                        let mut moved = operands.clone();
                        moved[index].values_mut()[element] += step;
                        loss(&moved)
                    });
                    let expected = (above - below) / (2.0 * STEP);
                    assert!(
                        (found - expected).abs() < 1e-8,
                        "{kind}: {found}, expected {expected}"
                    );
                }
            }
        }
    }
}
