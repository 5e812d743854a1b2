//! Derivative of [`SumToSize`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{ExpandAs, SumToSize};
use crate::value::ValueId;

impl Differentiable for SumToSize {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let d_x = graph.push_backward(node, ExpandAs, [gradient, node.inputs[0]])?;
        Ok(vec![Some(d_x)])
    }
}
