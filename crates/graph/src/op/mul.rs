//! Elementwise multiplication.

use super::operands::{count, exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x, y) → x · y`. y has the shape of x, or its last extents, and is then repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mul;

impl Definition for Mul {
    const NAME: &'static str = "mul";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, y] = exactly(operands)?;
        let outer = y.iter().take_while(|&&extent| extent == 1).count();
        if x == y || x.ends_with(&y[outer..]) {
            one(x)
        } else {
            Err(format!("cannot multiply {x:?} by {y:?}").into())
        }
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

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, y] = [0, 1].map(|index| operands[index].values());
        for (i, product) in results[0].values_mut().iter_mut().enumerate() {
            *product = x[i] * y[i % y.len()];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            let [_, tokens, channels] = shape;
            let x = || activation(&shape);
            cases.push_in_arena(Self, vec![x(), activation(&shape)]);
            cases.push(Self, vec![x(), parameter(&[1, tokens, channels])]);
            if tokens < 64 {
                cases.push(Self, vec![x(), parameter(&[channels])]);
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
        let gradient = only_gradient(gradients)?;
        let (x, y) = (node.inputs[0], node.inputs[1]);
        let d_x = builder.push(Self, [gradient, y])?;
        let d_y = builder.push(Self, [gradient, x])?;
        Ok(vec![Some(d_x), Some(builder.sum_to_size(d_y, y)?)])
    }
}
