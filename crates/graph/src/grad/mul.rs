//! Derivative of [`Mul`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::Mul;
use crate::value::ValueId;

impl Differentiable for Mul {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (x, y) = (node.inputs[0], node.inputs[1]);
        let d_x = graph.push_backward(node, Self, [gradient, y])?;
        let d_y = graph.push_backward(node, Self, [gradient, x])?;
        Ok(vec![Some(d_x), Some(graph.summed_to(node, d_y, y)?)])
    }
}
