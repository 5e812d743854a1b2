//! Derivative of [`Prepend`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Prepend, Slice};
use crate::value::ValueId;

impl Differentiable for Prepend {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        if node.inputs.len() == 1 {
            return Ok(vec![Some(gradient)]);
        }
        let (mut start, mut parts) = (0, Vec::with_capacity(node.inputs.len()));
        for &id in &node.inputs {
            let len = graph.value(id).shape[1];
            let part = graph.push_backward(node, Slice { axis: 1, start, len }, [gradient])?;
            parts.push(Some(graph.summed_to(node, part, id)?));
            start += len;
        }
        Ok(parts)
    }
}
