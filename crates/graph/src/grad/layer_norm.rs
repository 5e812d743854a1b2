//! Derivative of [`LayerNorm`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{LayerNorm, LayerNormBackward, Mul};
use crate::value::ValueId;

impl Differentiable for LayerNorm {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (x, weight, bias) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let backward = LayerNormBackward {
            epsilon: self.epsilon,
            fixed_deviation: false,
        };
        let d_x = graph.push_backward(node, backward, [x, weight, gradient])?;
        let d = graph.value(weight).shape[0];
        let ones = graph.push_backward_constant(node, d, &[1.0])?;
        let zeros = graph.push_backward_constant(node, d, &[0.0])?;
        let normal = graph.push_backward(node, *self, [x, ones, zeros])?;
        let d_weight = graph.push_backward(node, Mul, [gradient, normal])?;
        let d_weight = graph.summed_to(node, d_weight, weight)?;
        Ok(vec![
            Some(d_x),
            Some(d_weight),
            Some(graph.summed_to(node, gradient, bias)?),
        ])
    }
}
