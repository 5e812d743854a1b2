//! Derivative of [`ExpandAs`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::ExpandAs;
use crate::value::ValueId;

impl Differentiable for ExpandAs {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        Ok(vec![Some(graph.summed_to(node, gradient, node.inputs[0])?), None])
    }
}
