//! Softmax of rows.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{
    Add, Definition, Expand, Gradients, GraphBuilder, Locality, Mul, MulScalar, NodeValues, OpError, Reduce,
    ReduceKind, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::softmax::{log_sum_exp, softmax};
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [..,N]) → exp(x) / Σ exp(x)` of each row, or its logarithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softmax {
    /// True for the logarithm.
    pub log: bool,
}

impl Definition for Softmax {
    const NAME: &'static str = "softmax";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.log { " log" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        match x.last() {
            Some(&length) if length > 0 => one(x),
            _ => Err(format!("takes rows, got {x:?}").into()),
        }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        4 * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let length = operands[0].shape().last().copied().unwrap_or(1);
        let y = results[0].values_mut();
        y.copy_from_slice(operands[0].values());
        for row in y.chunks_exact_mut(length) {
            if self.log {
                let sum = log_sum_exp(row.iter().copied());
                row.iter_mut().for_each(|x| *x -= sum);
            } else {
                softmax(row);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            for log in [false, true] {
                cases.push(Self { log }, vec![activation(&shape)]);
                cases.push_in_arena(Self { log }, vec![activation(&shape)]);
            }
            if cases.is_micro() {
                // Rows of a whole block.
                cases.push(Self { log: false }, vec![activation(&[3, 5003])]);
                cases.push(Self { log: true }, vec![activation(&[2, 8192])]);
            }
        });
    }

    /// An exponential has the error of its rounded argument −d, at most `e⁻ᵈ·d·ε` < ε of the largest weight. Logarithms subtract the sum's.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let length = operands[0].shape().last().copied().unwrap_or(1);
        let sum = tolerance(DType::F32, length);
        if !self.log {
            return narrow(dtype) + sum;
        }
        let rows = operands[0].values().chunks_exact(length.max(1));
        let smallest = rows.map(|row| {
            let x = row.iter().copied();
            x.clone().fold(f64::INFINITY, f64::min) - log_sum_exp(x)
        });
        let largest = smallest.fold(0.0, |largest: f64, x| largest.max(x.abs()));
        narrow(dtype) + sum * (1.0 + 1.0 / largest.max(f64::from(f32::EPSILON)))
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if self.log {
            return Err(OpError::derivative("a logarithm of a softmax has no derivative"));
        }
        // y · (g − Σ g·y).
        let (gradient, y) = (only_gradient(gradients)?, node.outputs[0]);
        let (shape, at_2) = (builder.shape(y).to_vec(), builder.shape_at(y, 2)?);
        let batch = (0..shape.len()).find(|&axis| shape[axis] != at_2[axis]);
        let product = builder.push(Mul, [gradient, y])?;
        let reduce = Reduce {
            kind: ReduceKind::Sum,
            axes: vec![shape.len() - 1],
            keep: true,
        };
        let sum = builder.push(reduce, [product])?;
        let sum = builder.push(MulScalar(-1.0), [sum])?;
        let expand = Expand {
            extents: shape,
            batch,
            like: None,
        };
        let sum = builder.push(expand, [sum])?;
        let difference = builder.push(Add, [gradient, sum])?;
        Ok(vec![Some(builder.push(Mul, [difference, y])?)])
    }
}
