//! Prefix tokens.

use super::operands::one;
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, Slice, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(prefix [1,P,D] …, x [B,N,D]) → [B,ΣP+N,D]`: puts the prefix tokens, which all images share, before those of x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepend;

/// Concatenates the prefixes and each image of `x`.
pub(super) fn join<T: Real>(prefixes: &[&Array<T>], x: &Array<T>, y: &mut Array<T>) {
    let batch = x.shape()[0];
    let image = x.values().len() / batch;
    let mut joined = Vec::with_capacity(y.values().len());
    for b in 0..batch {
        for prefix in prefixes {
            joined.extend_from_slice(prefix.values());
        }
        joined.extend_from_slice(&x.values()[b * image..(b + 1) * image]);
    }
    y.values_mut().copy_from_slice(&joined);
}

impl Definition for Prepend {
    const NAME: &'static str = "prepend";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let Some((x, prefixes)) = operands.split_last() else {
            return Err("takes at least 1 operand".into());
        };
        let [b, n, d] = **x else {
            return Err(OpError::layout("x", x, "[B, N, D]"));
        };
        let mut tokens = n;
        for prefix in prefixes {
            match **prefix {
                [1, p, channels] if channels == d => tokens += p,
                _ => return Err(OpError::layout("a prefix", prefix, format!("[1, P, {d}]"))),
            }
        }
        one([b, tokens, d])
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        if let Some((x, prefixes)) = operands.split_last() {
            join(prefixes, x, &mut results[0]);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let prefix = |count| parameter(&[1, count, channels]);
            let x = activation(&[batch, tokens, channels]);
            cases.push(Self, vec![prefix(1), prefix(4), x]);
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
        if node.inputs.len() == 1 {
            return Ok(vec![Some(gradient)]);
        }
        let (mut start, mut parts) = (0, Vec::with_capacity(node.inputs.len()));
        for &id in node.inputs {
            let len = builder.shape(id)[1];
            let part = builder.push(Slice::new(1, start, len), [gradient])?;
            parts.push(Some(builder.sum_to_size(part, id)?));
            start += len;
        }
        Ok(parts)
    }
}
