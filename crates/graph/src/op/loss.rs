//! Losses of images.

mod attributes;

use std::fmt;

pub use self::attributes::LossKind;
pub(super) use self::attributes::images;
use super::operands::{count, exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, LossBackward, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, probabilities};
use crate::dtype::DType;
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// `(logits [B,C], targets [B,C] f32) → loss [B,1] f32`: the loss of each image. It has no derivative with respect to the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss(pub LossKind);

/// Returns `ln(1 + e^x)` without overflow.
pub(super) fn softplus<T: Real>(x: T) -> T {
    x.max(T::ZERO) + (T::ONE + (-x.abs()).exp()).ln()
}

/// Returns the loss of an image.
pub(super) fn of_image<T: Real>(kind: LossKind, logits: &[T], targets: &[T]) -> T {
    let pairs = logits.iter().copied().zip(targets.iter().copied());
    let classes = T::from_f64(logits.len() as f64);
    match kind {
        LossKind::CrossEntropy => {
            let most = logits.iter().copied().fold(T::NEG_INFINITY, T::max);
            let sum: T = logits.iter().map(|&z| (z - most).exp()).sum();
            let log_sum = sum.ln();
            pairs.map(|(z, t)| t * (log_sum - (z - most))).sum()
        }
        LossKind::BinaryCrossEntropy => pairs.map(|(z, t)| softplus(z) - z * t).sum::<T>() / classes,
        LossKind::MeanSquaredError => pairs.map(|(z, t)| (z - t).powi(2)).sum::<T>() / classes,
    }
}

impl Definition for Loss {
    const NAME: &'static str = "loss";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.0)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [logits, targets] = exactly(operands)?;
        one([images(logits, targets)?, 1])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    /// An exponential, its sum and a product with the target.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        5 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, classes] = operands[0].extents();
        let [logits, targets] = [0, 1].map(|index: usize| operands[index].values().chunks_exact(classes));
        let images = logits.zip(targets);
        for (loss, (logits, targets)) in results[0].values_mut().iter_mut().zip(images) {
            *loss = of_image(self.0, logits, targets);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            for kind in LossKind::ALL {
                let shape = [batch * tokens, channels];
                cases.push(Self(kind), vec![activation(&shape), probabilities(&shape)]);
            }
        });
    }

    /// The result is f32. A loss may be far below the terms that it sums, so the bound is relative to those of the largest loss.
    fn tolerance(&self, _index: usize, operands: &[&Array], _dtype: DType) -> f64 {
        let [_, classes] = operands[0].extents();
        4.0 * tolerance(DType::F32, classes)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let operands = [node.inputs[0], node.inputs[1], only_gradient(gradients)?];
        let d_logits = builder.push(LossBackward(self.0), operands)?;
        Ok(vec![Some(d_logits), None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of PyTorch 2.11 in f64.
    #[test]
    fn losses_are_those_of_pytorch() {
        let logits = Array::new([2, 3], vec![1.0, -2.0, 0.5, 30.0, 0.0, -30.0]).unwrap();
        let targets = Array::new([2, 3], vec![0.7, 0.1, 0.2, 0.0, 0.5, 0.5]).unwrap();
        let expected = [
            (
                LossKind::CrossEntropy,
                [0.904_596_902_342_283_4, 45.000_000_000_000_09],
            ),
            (
                LossKind::BinaryCrossEntropy,
                [0.604_755_560_913_767_4, 15.231_049_060_186_711],
            ),
            (LossKind::MeanSquaredError, [1.53, 610.166_666_666_666_6]),
        ];
        for (kind, losses) in expected {
            let result = Loss(kind).eval(&[&logits, &targets]).unwrap();
            for (loss, expected) in result[0].values().iter().zip(losses) {
                assert!((loss - expected).abs() < 1e-9, "{kind}: {loss}");
            }
        }
    }
}
