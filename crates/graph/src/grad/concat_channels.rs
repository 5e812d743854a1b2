//! Derivative of [`ConcatChannels`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{ConcatChannels, Slice};
use crate::value::ValueId;

impl Differentiable for ConcatChannels {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let [m, n] = [0, 1].map(|index: usize| graph.value(node.inputs[index]).shape[1]);
        let mut part = |start, len| graph.push_backward(node, Slice { axis: 1, start, len }, [gradient]);
        Ok(vec![Some(part(0, m)?), Some(part(m, n)?)])
    }
}
