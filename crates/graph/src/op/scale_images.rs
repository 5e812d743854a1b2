//! Factors of images.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, single};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [B,…], factors [B,K] f32) → x · factors[:, column]`: multiplies each image by its factor, such as 0 or 1/(1 − p) in stochastic depth.
/// It has no derivative with respect to the factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleImages {
    /// Column of the factors.
    pub column: usize,
}

impl Definition for ScaleImages {
    const NAME: &'static str = "scale_images";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " by column {}", self.column)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, factors] = exactly(operands)?;
        match (x, factors) {
            ([batch, _, ..], [images, columns]) if images == batch && self.column < *columns => one(x),
            _ => {
                let expected = format!("[B, K] with K > {} for x {x:?}", self.column);
                Err(OpError::layout("the factors", factors, expected))
            }
        }
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::F32 }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        count(&results[0])
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        operands[index][if index == 0 { 0..operands[0].len() } else { 0..1 }]
            .iter()
            .product()
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [batch, columns] = operands[1].extents();
        let len = operands[0].values().len() / batch;
        let images = operands[0].values().chunks_exact(len);
        let factors = operands[1].values().chunks_exact(columns);
        let results = results[0].values_mut().chunks_exact_mut(len);
        for ((y, x), factors) in results.zip(images).zip(factors) {
            y.iter_mut()
                .zip(x)
                .for_each(|(y, &x)| *y = x * factors[self.column]);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let op = Self { column: 1 };
            let operands = || vec![activation(&shape), single(&[shape[0], 3])];
            cases.push(op, operands());
            if every_form {
                cases.push_in_arena(op, operands());
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let d_x = builder.push(*self, [only_gradient(gradients)?, node.inputs[1]])?;
        Ok(vec![Some(d_x), None])
    }
}
