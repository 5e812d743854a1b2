//! Derivative of [`PatchExtract`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{PatchExtract, PatchExtractBackward, PixelLayout};
use crate::value::ValueId;

impl Differentiable for PatchExtract {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let shape = &graph.value(node.inputs[0]).shape;
        let image = match self.layout {
            PixelLayout::Hwc => [shape[1], shape[2]],
            PixelLayout::Chw => [shape[2], shape[3]],
        };
        let backward = PatchExtractBackward {
            extract: *self,
            image,
        };
        Ok(vec![Some(graph.push_backward(node, backward, [gradient])?)])
    }
}
