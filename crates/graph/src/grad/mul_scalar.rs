//! Derivative of [`MulScalar`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::MulScalar;
use crate::value::ValueId;

impl Differentiable for MulScalar {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        Ok(vec![Some(graph.push_backward(node, *self, [gradient])?)])
    }
}
