//! Losses of pairs of images and texts.

mod attributes;
mod logits;

use std::fmt;

pub use self::attributes::{ContrastiveKind, ContrastiveLoss};
pub(super) use self::logits::Logits;
use super::loss::softplus;
use super::operands::{count, one};
use super::{
    ContrastiveLossBackward, Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, positive};
use crate::dtype::DType;
use crate::tolerance::tolerance;
use crate::value::ValueId;

impl ContrastiveKind {
    /// Returns the operands of a case.
    pub(super) fn operands(self, pairs: usize) -> Vec<Operand> {
        let mut operands = vec![activation(&[pairs, pairs]), positive(&[1])];
        operands.extend(self.has_bias().then(|| positive(&[1])));
        operands
    }
}

impl Definition for ContrastiveLoss {
    const NAME: &'static str = "contrastive_loss";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.0)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        one([self.0.pairs(operands)?, 1])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    /// A product, an exponential and a sum for each row and each column.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        10 * count(operands[0])
    }

    /// A loss depends on a row and a column.
    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let logits = Logits::new(self.0, operands);
        let (rows, columns) = match self.0 {
            ContrastiveKind::InfoNce => logits.log_sums(),
            ContrastiveKind::Sigmoid => Default::default(),
        };
        for (i, loss) in results[0].values_mut().iter_mut().enumerate() {
            *loss = match self.0 {
                ContrastiveKind::InfoNce => (rows[i] + columns[i]) / T::from_f32(2.0) - logits.at(i, i),
                ContrastiveKind::Sigmoid => (0..logits.pairs)
                    .map(|j| {
                        let z = logits.at(i, j);
                        softplus(if i == j { -z } else { z })
                    })
                    .sum(),
            };
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [_, tokens, _], _| {
            for kind in ContrastiveKind::ALL {
                cases.push(Self(kind), kind.operands(tokens));
            }
        });
    }

    /// The result is f32. A loss may be below the terms that it sums.
    fn tolerance(&self, _index: usize, operands: &[&Array], _dtype: DType) -> f64 {
        let [pairs, _] = operands[0].extents();
        4.0 * tolerance(DType::F32, pairs)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let operands = [node.inputs, &[only_gradient(gradients)?]].concat();
        let results = builder.push_node(ContrastiveLossBackward(self.0), operands)?;
        Ok(results.into_iter().map(Some).collect())
    }
}
