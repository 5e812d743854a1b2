//! Affine maps of the channels.

use super::operands::{count, exactly, expect, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, Mul, NodeValues, OpError, Scale, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [..,D], weight [D], bias [D]) → x · weight + bias` (ResMLP's norm). <https://arxiv.org/abs/2105.03404>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine;

impl Definition for Affine {
    const NAME: &'static str = "affine";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, weight, bias] = exactly(operands)?;
        let [.., d] = *x else {
            return Err("x is a scalar".into());
        };
        expect("weight", weight, &[d])?;
        expect("bias", bias, &[d])?;
        one(x)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        2 * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 1..3 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, weight, bias] = [0, 1, 2].map(|index| operands[index].values());
        for (i, y) in results[0].values_mut().iter_mut().enumerate() {
            *y = x[i] * weight[i % weight.len()] + bias[i % bias.len()];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let operands = || vec![activation(&shape), parameter(&shape[2..]), parameter(&shape[2..])];
            cases.push(Self, operands());
            if every_form {
                cases.push_in_arena(Self, operands());
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 2)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let (x, weight, bias) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let d_x = builder.push(Scale, [gradient, weight])?;
        let d_weight = builder.push(Mul, [gradient, x])?;
        let d_weight = builder.sum_to_size(d_weight, weight)?;
        Ok(vec![
            Some(d_x),
            Some(d_weight),
            Some(builder.sum_to_size(gradient, bias)?),
        ])
    }
}
