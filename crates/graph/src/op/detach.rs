//! Values that derivatives take for constants.

use super::operands::{exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x) → x`, which counts as a constant in derivatives. Elements may be of any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detach;

impl Definition for Detach {
    const NAME: &'static str = "detach";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        one(x)
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        results[0].values_mut().copy_from_slice(operands[0].values());
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            cases.push(Self, vec![activation(&shape)]);
            cases.push_in_arena(Self, vec![activation(&shape)]);
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }

    fn vjp(
        &self,
        _builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        _gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        Ok(vec![None])
    }
}
