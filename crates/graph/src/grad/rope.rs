//! Derivative of [`Rope`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Mul, Rope};
use crate::value::ValueId;

impl Differentiable for Rope {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        // The transpose of a rotation is the inverse rotation: negative sines. The angles are not differentiated.
        let gradient = only(node, gradients)?;
        let table = node.inputs[1];
        let len = graph.value(table).shape[2];
        let half = self.head_dim / 2;
        let signs = [vec![1.0; half], vec![-1.0; half]].concat();
        let signs = graph.push_backward_constant(node, len, &signs)?;
        let back = graph.push_backward(node, Mul, [table, signs])?;
        let d_x = graph.push_backward(node, *self, [gradient, back])?;
        Ok(vec![Some(d_x), None])
    }
}
