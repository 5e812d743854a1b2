//! Derivative of [`Normalize`].

use super::backward::only;
use super::differentiable::Differentiable;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Normalize, PatchExtract, PatchExtractBackward, PixelLayout};
use crate::value::ValueId;

impl Differentiable for Normalize {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let shape = &graph.value(node.inputs[0]).shape;
        let image = [shape[1], shape[2]];
        let pixels = |layout, normalize| PatchExtract {
            patch: [1, 1],
            layout,
            normalize,
        };
        let backward = PatchExtractBackward {
            extract: pixels(PixelLayout::Hwc, Some(*self)),
            image,
        };
        // Patches of one pixel turn planes into pixels.
        let d_y = graph.push_backward(node, pixels(PixelLayout::Chw, None), [gradient])?;
        Ok(vec![Some(graph.push_backward(node, backward, [d_y])?)])
    }
}
