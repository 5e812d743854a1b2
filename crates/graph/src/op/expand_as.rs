//! Repetition over images, rows or groups of channels: the gradient of a sum over them.

use super::operands::{count, exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x, like) → x, repeated to the shape of like`. The elements of `like` are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpandAs;

impl Definition for ExpandAs {
    const NAME: &'static str = "expand_as";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, like] = exactly(operands)?;
        if count(x) == 0 || !count(like).is_multiple_of(count(x)) {
            return Err(format!("cannot expand {x:?} to {like:?}").into());
        }
        one(like)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        match index {
            0 => operands[0].iter().product(),
            _ => 0,
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let x = operands[0].values();
        for piece in results[0].values_mut().chunks_exact_mut(x.len()) {
            piece.copy_from_slice(x);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            let [_, tokens, channels] = shape;
            for x in [&[1, tokens, channels][..], &[channels]] {
                cases.push(Self, vec![parameter(x), activation(&shape)]);
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        Ok(vec![Some(builder.sum_to_size(gradient, node.inputs[0])?), None])
    }
}
