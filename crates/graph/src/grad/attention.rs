//! Derivative of [`Attention`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::{Attention, AttentionBackward};
use crate::value::ValueId;

impl Differentiable for Attention {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        if gradients.get(1).is_some_and(Option::is_some) {
            return Err(Error::graph(
                &node.name,
                "the statistics of attention have no derivative",
            ));
        }
        let gradient = only(node, gradients)?;
        let saved = if self.statistics {
            node.outputs.as_slice()
        } else {
            &[]
        };
        let operands = [node.inputs.as_slice(), saved, &[gradient]].concat();
        let backward = graph.push_backward_node(node, AttentionBackward(*self), operands)?;
        let mut of_operands: Vec<_> = backward.outputs.iter().copied().map(Some).collect();
        of_operands.resize(node.inputs.len(), None);
        Ok(of_operands)
    }
}
