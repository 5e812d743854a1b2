//! Derivative of [`Activation`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Activation, ActivationBackward};
use crate::value::ValueId;

impl Differentiable for Activation {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let backward = ActivationBackward {
            activation: *self,
            secant: false,
        };
        let gradient = only(node, gradients)?;
        let d_x = graph.push_backward(node, backward, [node.inputs[0], gradient])?;
        Ok(vec![Some(d_x)])
    }
}
