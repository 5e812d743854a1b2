//! Multiplication by a number.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{
    Definition, Division, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x) → factor · x`, with the factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MulScalar(pub f32);

impl Definition for MulScalar {
    const NAME: &'static str = "mul_scalar";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.0)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        one(x)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        Some(Division::of_channels(blocks))
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let factor = T::from_f32(self.0);
        for (y, &x) in results[0].values_mut().iter_mut().zip(operands[0].values()) {
            *y = factor * x;
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            cases.push(Self(-0.3), vec![activation(&shape)]);
            if every_form {
                cases.push_in_arena(Self(-0.3), vec![activation(&shape)]);
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        Ok(vec![Some(builder.push(*self, [gradient])?)])
    }
}
