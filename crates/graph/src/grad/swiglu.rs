//! Derivative of [`SwiGlu`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{SwiGlu, SwiGluBackward};
use crate::value::ValueId;

impl Differentiable for SwiGlu {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let backward = SwiGluBackward { secant: false };
        let d_x = graph.push_backward(node, backward, [node.inputs[0], gradient])?;
        Ok(vec![Some(d_x)])
    }
}
