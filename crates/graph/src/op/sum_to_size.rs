//! Sums over images, rows or groups of channels: the gradient of a repetition over them.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{
    Definition, ExpandAs, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x) → sum of consecutive pieces of x`, in order. A piece has as many elements as `shape`. A single piece is only reshaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumToSize {
    /// Extents of the result.
    pub shape: Shape,
}

impl SumToSize {
    /// Returns the number of pieces of `elements` elements.
    fn pieces(&self, elements: usize) -> usize {
        elements / self.shape.iter().product::<usize>().max(1)
    }
}

impl Definition for SumToSize {
    const NAME: &'static str = "sum_to_size";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {:?}", self.shape)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let piece = count(&self.shape);
        if piece == 0 || !count(x).is_multiple_of(piece) {
            return Err(format!("cannot sum {x:?} to {:?}", self.shape).into());
        }
        one(self.shape.clone())
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let sum = results[0].values_mut();
        for piece in operands[0].values().chunks_exact(sum.len()) {
            sum.iter_mut().zip(piece).for_each(|(sum, &x)| *sum += x);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        let sum = |shape: &[usize]| Self { shape: shape.into() };
        cases.for_each_shape(|cases, shape, _| {
            let [batch, tokens, channels] = shape;
            cases.push(sum(&[1, tokens, channels]), vec![activation(&shape)]);
            cases.push(sum(&[channels]), vec![activation(&shape)]);
            if cases.is_micro() {
                // A single piece, and pieces that are summed in several chunks.
                cases.push(sum(&[batch, tokens * channels]), vec![activation(&shape)]);
                cases.push(sum(&[5]), vec![activation(&[3, 257, 5])]);
            }
        });
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        match self.pieces(operands[0].values().len()) {
            1 => 0.0,
            pieces => narrow(dtype) + tolerance(DType::F32, pieces),
        }
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let d_x = builder.push(ExpandAs, [gradient, node.inputs[0]])?;
        Ok(vec![Some(d_x)])
    }
}
