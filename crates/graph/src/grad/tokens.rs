//! Derivative of [`Tokens`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Slice, Tokens};
use crate::value::ValueId;

impl Differentiable for Tokens {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (mut d_x, mut rest) = (gradient, Vec::new());
        if self.prefix {
            let [n, p] = [0, 1].map(|index: usize| graph.value(node.inputs[index]).shape[1]);
            let mut part = |start, len| graph.push_backward(node, Slice { axis: 1, start, len }, [gradient]);
            d_x = part(p, n)?;
            let d_prefix = part(0, p)?;
            rest.push(Some(graph.summed_to(node, d_prefix, node.inputs[1])?));
        }
        if self.position {
            rest.push(Some(graph.summed_to(
                node,
                d_x,
                node.inputs[node.inputs.len() - 1],
            )?));
        }
        Ok(std::iter::once(Some(d_x)).chain(rest).collect())
    }
}
