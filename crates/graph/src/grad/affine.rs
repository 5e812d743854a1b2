//! Derivative of [`Affine`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Affine, Mul, Scale};
use crate::value::ValueId;

impl Differentiable for Affine {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (x, weight, bias) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let d_x = graph.push_backward(node, Scale, [gradient, weight])?;
        let d_weight = graph.push_backward(node, Mul, [gradient, x])?;
        let d_weight = graph.summed_to(node, d_weight, weight)?;
        Ok(vec![
            Some(d_x),
            Some(d_weight),
            Some(graph.summed_to(node, gradient, bias)?),
        ])
    }
}
