//! Concatenation of channels.

use super::operands::{exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, Slice, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x [B,D1], y [B,D2]) → [B,D1+D2]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcatChannels;

impl Definition for ConcatChannels {
    const NAME: &'static str = "concat_channels";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, y] = exactly(operands)?;
        match (x, y) {
            (&[b, m], &[batch, n]) if b == batch => one([b, m + n]),
            _ => Err(format!("cannot concatenate the channels of {x:?} and {y:?}").into()),
        }
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, y] = [0, 1].map(|index| operands[index].values());
        let ([_, m], [_, n]) = (operands[0].extents(), operands[1].extents());
        for (b, row) in results[0].values_mut().chunks_mut(m + n).enumerate() {
            row[..m].copy_from_slice(&x[b * m..(b + 1) * m]);
            row[m..].copy_from_slice(&y[b * n..(b + 1) * n]);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, _, channels], _| {
            cases.push(
                Self,
                vec![activation(&[batch, channels]), activation(&[batch, 7])],
            );
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
        let [m, n] = [0, 1].map(|index: usize| builder.shape(node.inputs[index])[1]);
        let mut part = |start, len| builder.push(Slice { axis: 1, start, len }, [gradient]);
        Ok(vec![Some(part(0, m)?), Some(part(m, n)?)])
    }
}
