//! Addition that is not fused into another op.

use super::operands::{count, exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x, y) → x + y`. y has the shape of x, or a batch of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add;

impl Definition for Add {
    const NAME: &'static str = "add";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, y] = exactly(operands)?;
        let broadcast = y.len() == x.len() && y.first() == Some(&1) && y[1..] == x[1..];
        if x == y || broadcast {
            one(x)
        } else {
            Err(format!("cannot add {y:?} to {x:?}").into())
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

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0, 1])
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, y] = [0, 1].map(|index| operands[index].values());
        for (i, sum) in results[0].values_mut().iter_mut().enumerate() {
            *sum = x[i] + y[i % y.len()];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let [_, tokens, channels] = shape;
            let x = || activation(&shape);
            cases.push_in_arena(Self, vec![x(), x()]);
            cases.push(Self, vec![x(), activation(&[1, tokens, channels])]);
            if every_form {
                cases.push(Self, vec![x(), x()]);
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
        Ok(vec![
            Some(gradient),
            Some(builder.sum_to_size(gradient, node.inputs[1])?),
        ])
    }
}
