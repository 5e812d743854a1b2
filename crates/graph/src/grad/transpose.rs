//! Derivative of [`Transpose`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Combine, Mul, Scale, Slice, Transpose};
use crate::value::ValueId;

impl Differentiable for Transpose {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let mut gradient = only(node, gradients)?;
        let x = node.inputs[0];
        let mut of_y = None;
        if let (Some(combine), Some(&y)) = (self.combine, node.inputs.last()) {
            of_y = Some(gradient);
            if combine == Combine::Multiply {
                let alone = Self {
                    combine: None,
                    ..*self
                };
                let operands = &node.inputs[..node.inputs.len() - 1];
                let value = graph.push_backward(node, alone, operands)?;
                of_y = Some(graph.push_backward(node, Mul, [gradient, value])?);
                gradient = graph.push_backward(node, Mul, [gradient, y])?;
            }
        }
        // Without the columns of zeros, which follow the rows of x.
        let rows = graph.value(x).shape[1];
        if self.pad > 0 {
            let slice = Slice {
                axis: 2,
                start: 0,
                len: rows,
            };
            gradient = graph.push_backward(node, slice, [gradient])?;
        }
        let mut of_gamma = None;
        if self.scale {
            let gamma = node.inputs[1];
            let transposed = Self {
                crop: self.crop,
                ..Self::default()
            };
            let transposed = graph.push_backward(node, transposed, [x])?;
            let d_gamma = graph.push_backward(node, Mul, [gradient, transposed])?;
            of_gamma = Some(graph.summed_to(node, d_gamma, gamma)?);
            gradient = graph.push_backward(node, Scale, [gradient, gamma])?;
        }
        let back = Self {
            pad: self.crop,
            ..Self::default()
        };
        let d_x = graph.push_backward(node, back, [gradient])?;
        let mut gradients = vec![Some(d_x)];
        gradients.extend(of_gamma.map(Some));
        gradients.extend(of_y.map(Some));
        Ok(gradients)
    }
}
