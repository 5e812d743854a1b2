//! Losses of images that learn from a teacher.

mod attributes;

use std::fmt;

pub use self::attributes::{DistillationKind, DistillationLoss};
use super::loss::of_image;
use super::operands::{count, one};
use super::{
    Definition, DistillationLossBackward, Gradients, GraphBuilder, Locality, LossKind, NodeValues, OpError,
    Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, probabilities, single};
use crate::dtype::DType;
use crate::softmax::log_sum_exp;
use crate::tolerance::{tolerance, unit_roundoff};
use crate::value::ValueId;

/// Returns the index of the largest value, the first of equal ones.
pub(super) fn largest<T: Real>(values: &[T]) -> usize {
    let mut found = 0;
    for (index, &value) in values.iter().enumerate() {
        if value > values[found] {
            found = index;
        }
    }
    found
}

impl DistillationLoss {
    /// Returns the forms that are validated.
    pub(super) fn forms() -> impl Iterator<Item = Self> {
        let soft = LossKind::ALL.into_iter().map(|base| Self {
            base,
            kind: DistillationKind::Soft,
            alpha: 0.25,
            temperature: 3.0,
        });
        let hard = Self {
            base: LossKind::CrossEntropy,
            kind: DistillationKind::Hard,
            alpha: 0.5,
            temperature: 1.0,
        };
        soft.chain([hard])
    }

    /// Returns the comparison of an image's logits with the teacher's.
    fn of_teacher<T: Real>(&self, logits: &[T], teacher: &[T]) -> T {
        match self.kind {
            DistillationKind::Soft => {
                let temperature = T::from_f32(self.temperature);
                let [student, teacher] = [logits, teacher].map(|logits| {
                    let scaled: Vec<T> = logits.iter().map(|&z| z / temperature).collect();
                    let sum = log_sum_exp(scaled.iter().copied());
                    scaled.into_iter().map(move |z| z - sum)
                });
                let divergence: T = student.zip(teacher).map(|(s, t)| t.exp() * (t - s)).sum();
                divergence * temperature * temperature / T::from_f64(logits.len() as f64)
            }
            DistillationKind::Hard => log_sum_exp(logits.iter().copied()) - logits[largest(teacher)],
        }
    }
}

impl Definition for DistillationLoss {
    const NAME: &'static str = "distillation_loss";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {self}")
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [batch, _] = self.extents(operands)?;
        one([batch, 1])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index < 2 { dtype } else { DType::F32 }
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    /// The loss of the targets, and two exponentials with their sums and products.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        15 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, classes] = operands[0].extents();
        let alpha = T::from_f32(self.alpha);
        for (image, loss) in results[0].values_mut().iter_mut().enumerate() {
            let [logits, distilled, targets, teacher] =
                [0, 1, 2, 3].map(|index: usize| &operands[index].values()[image * classes..][..classes]);
            let base = of_image(self.base, logits, targets);
            *loss = (T::ONE - alpha) * base + alpha * self.of_teacher(distilled, teacher);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            for op in Self::forms() {
                let shape = [batch * tokens, channels];
                let logits = [activation(&shape), activation(&shape)];
                let others = [probabilities(&shape), single(&shape)];
                cases.push(op, logits.into_iter().chain(others).collect());
            }
        });
    }

    /// The loss of the targets has the bound of [`Loss`](super::Loss). The divergence sums differences of logarithms, which cancel: each has
    /// some roundings of numbers of up to ln C and the largest logits.
    fn tolerance(&self, _index: usize, operands: &[&Array], _dtype: DType) -> f64 {
        let [_, classes] = operands[0].extents();
        let magnitude = |values: &[f64]| values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let logits = magnitude(operands[1].values()).max(magnitude(operands[3].values()));
        let temperature = f64::from(self.temperature);
        let logarithms = 2.0 * logits / temperature + (classes as f64).ln();
        let factor = f64::from(self.alpha) * temperature * temperature / classes as f64;
        let results = self.eval(operands).unwrap_or_default();
        let loss = results.first().map_or(0.0, |losses| magnitude(losses.values()));
        let cancelled = match self.kind {
            DistillationKind::Soft if loss > 0.0 => {
                factor * 16.0 * unit_roundoff(DType::F32) * logarithms / loss
            }
            _ => 0.0,
        };
        4.0 * tolerance(DType::F32, classes) + cancelled
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let operands = [node.inputs, &[only_gradient(gradients)?]].concat();
        let results = builder.push_node(DistillationLossBackward(*self), operands)?;
        let of_logits = results.into_iter().map(Some);
        Ok(of_logits.chain([None, None]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alpha_above_1_and_a_temperature_of_0_are_refused() {
        let op = DistillationLoss {
            base: LossKind::CrossEntropy,
            kind: DistillationKind::Soft,
            alpha: 1.5,
            temperature: 3.0,
        };
        let shapes = [&[2, 3][..]; 4];
        assert!(
            op.shapes(&shapes)
                .unwrap_err()
                .to_string()
                .contains("alpha of 1.5")
        );
        let cold = DistillationLoss {
            alpha: 0.5,
            temperature: 0.0,
            ..op
        };
        assert!(cold.shapes(&shapes).is_err());
        let warm = DistillationLoss { alpha: 0.5, ..op };
        assert_eq!(warm.shapes(&shapes).unwrap(), [[2, 1]]);
    }
}
