//! Scaling of the channels.

use super::operands::{count, exactly, expect, one};
use super::{Definition, Gradients, GraphBuilder, Locality, Mul, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [..,D], gamma [D]) → x · gamma` (LayerScale).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale;

impl Definition for Scale {
    const NAME: &'static str = "scale";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, gamma] = exactly(operands)?;
        let [.., d] = *x else {
            return Err("x is a scalar".into());
        };
        expect("gamma", gamma, &[d])?;
        one(x)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 1..2 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, gamma] = [0, 1].map(|index| operands[index].values());
        for (i, y) in results[0].values_mut().iter_mut().enumerate() {
            *y = x[i] * gamma[i % gamma.len()];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let operands = || vec![activation(&shape), parameter(&shape[2..])];
            cases.push(Self, operands());
            if every_form {
                cases.push_in_arena(Self, operands());
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
        let (x, gamma) = (node.inputs[0], node.inputs[1]);
        let d_x = builder.push(Self, [gradient, gamma])?;
        let d_gamma = builder.push(Mul, [gradient, x])?;
        Ok(vec![Some(d_x), Some(builder.sum_to_size(d_gamma, gamma)?)])
    }
}
