//! Derivative of [`Linear`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{ActivationBackward, Linear, MatMul};
use crate::value::ValueId;

impl Differentiable for Linear {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        self.vjp_by(graph, node, only(node, gradients)?, false)
    }
}

impl Linear {
    /// Computes [`Op::vjp`](crate::op::Op::vjp), optionally with the [secant](ActivationBackward::secant) as the activation's slope.
    /// Rounding counts as the identity (straight-through estimator). <https://arxiv.org/abs/1308.3432>
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Graph::push`].
    pub fn vjp_by(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradient: ValueId,
        secant: bool,
    ) -> Result<Vec<Option<ValueId>>> {
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let mut inner = gradient;
        if let Some(activation) = self.activation {
            let before = Self {
                activation: None,
                residual: false,
                ..*self
            };
            let operands = &node.inputs[..2 + usize::from(self.bias)];
            let before = graph.push_backward(node, before, operands)?;
            let backward = ActivationBackward { activation, secant };
            inner = graph.push_backward(node, backward, [before, gradient])?;
        }
        let d_x = graph.push_backward(node, MatMul { transpose_a: false }, [inner, weight])?;
        let d_weight = graph.push_backward(node, MatMul { transpose_a: true }, [inner, x])?;
        let mut gradients = vec![Some(d_x), Some(d_weight)];
        if self.bias {
            gradients.push(Some(graph.summed_to(node, inner, node.inputs[2])?));
        }
        gradients.extend(self.residual.then_some(Some(gradient)));
        Ok(gradients)
    }
}
