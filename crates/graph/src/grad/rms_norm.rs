//! Derivative of [`RmsNorm`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Mul, RmsNorm, RmsNormBackward};
use crate::value::ValueId;

impl Differentiable for RmsNorm {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let backward = RmsNormBackward {
            epsilon: self.epsilon,
            fixed_root: false,
        };
        let d_x = graph.push_backward(node, backward, [x, weight, gradient])?;
        let d = graph.value(weight).shape[0];
        let ones = graph.push_backward_constant(node, d, &[1.0])?;
        let normal = graph.push_backward(node, *self, [x, ones])?;
        let d_weight = graph.push_backward(node, Mul, [gradient, normal])?;
        Ok(vec![Some(d_x), Some(graph.summed_to(node, d_weight, weight)?)])
    }
}
