//! Derivative of [`PatchConv`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{MatMul, PatchConv, PatchExtractBackward, SumToSize};
use crate::value::ValueId;

impl Differentiable for PatchConv {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let (image, shape) = (&graph.value(x).shape, graph.value(weight).shape.clone());
        let image = [image[2], image[3]];
        let extract = self.extract();
        let matrix = SumToSize {
            shape: vec![shape[0], shape[1..].iter().product()],
        };
        let matrix = graph.push_backward(node, matrix, [weight])?;
        let d_patches = graph.push_backward(node, MatMul { transpose_a: false }, [gradient, matrix])?;
        let d_x = graph.push_backward(node, PatchExtractBackward { extract, image }, [d_patches])?;
        let patches = graph.push_backward(node, extract, [x])?;
        let d_weight = graph.push_backward(node, MatMul { transpose_a: true }, [gradient, patches])?;
        let d_weight = graph.push_backward(node, SumToSize { shape }, [d_weight])?;
        let mut gradients = vec![Some(d_x), Some(d_weight)];
        if self.bias {
            gradients.push(Some(graph.summed_to(node, gradient, node.inputs[2])?));
        }
        Ok(gradients)
    }
}
