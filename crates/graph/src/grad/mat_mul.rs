//! Derivative of [`MatMul`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Linear, MatMul};
use crate::value::ValueId;

impl Differentiable for MatMul {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let by_transposed = Linear::default();
        let [d_a, d_b] = if self.transpose_a {
            let d_a = graph.push_backward(node, by_transposed, [b, gradient])?;
            [
                d_a,
                graph.push_backward(node, Self { transpose_a: false }, [a, gradient])?,
            ]
        } else {
            let d_a = graph.push_backward(node, by_transposed, [gradient, b])?;
            [
                d_a,
                graph.push_backward(node, Self { transpose_a: true }, [a, gradient])?,
            ]
        };
        Ok(vec![Some(d_a), Some(d_b)])
    }
}
