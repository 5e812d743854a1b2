//! Derivative of [`Pool`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Pool, PoolBackward};
use crate::value::ValueId;

impl Differentiable for Pool {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let d_x = graph.push_backward(node, PoolBackward(*self), [node.inputs[0], gradient])?;
        Ok(vec![Some(d_x)])
    }
}
