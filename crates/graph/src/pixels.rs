//! Graphs of pixel values that take pixels instead.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Role};
use crate::op::{Normalize, Op, PatchExtract, Permute, PixelLayout, Reshape};
use crate::value::{FirstInput, Value, ValueId, ValueKind};

impl Graph {
    /// Returns the graph for images in u8, `[1, H, W, 3]`, whose pixel values are the first input of this graph: `[1, 3, H, W]` in f32, or
    /// `[1, H, W, 3]` if `channels_last`.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the input, if it has another shape or dtype.
    pub fn with_pixels(&self, normalize: Normalize, channels_last: bool) -> Result<Self> {
        let input = self.value(self.input);
        let (height, width) = match (input.shape.as_slice(), channels_last) {
            (&[1, 3, height, width], false) | (&[1, height, width, 3], true) if input.dtype == DType::F32 => {
                (height, width)
            }
            _ => {
                let reason = format!("is {} {:?}, which is not an image", input.dtype, input.shape);
                return Err(Error::graph(&input.name, reason));
            }
        };
        let mut graph = self.clone();
        let values = self.input;
        let pixels = graph.push_value(Value {
            name: self.free_name("pixels"),
            dtype: DType::U8,
            shape: vec![1, height, width, 3],
            ..self.value(values).clone()
        });
        let is_patches = |node: &Node| matches!(node.op, Op::PatchConv(_));
        let mut readers = self.nodes.iter().filter(|node| node.inputs.contains(&values));
        let nodes = if !channels_last && readers.all(is_patches) {
            // A pass fuses the normalisation into the extraction of patches.
            vec![self.node("normalize", Op::Normalize(normalize), pixels, values)]
        } else {
            graph.pixels_by_channels_last(normalize, [pixels, values], [height, width], channels_last)
        };
        graph.values[values.index()].kind = ValueKind::Result;
        graph.nodes.splice(0..0, nodes);
        graph.input = pixels;
        graph.first_input = FirstInput::Images {
            per_image: self.first_input().per_image,
        };
        Ok(graph)
    }

    /// Returns nodes that normalise pixels, whose channels are last, as patches of one pixel.
    fn pixels_by_channels_last(
        &mut self,
        normalize: Normalize,
        [pixels, values]: [ValueId; 2],
        [height, width]: [usize; 2],
        channels_last: bool,
    ) -> Vec<Node> {
        let extract = PatchExtract {
            patch: [1, 1],
            layout: PixelLayout::Hwc,
            normalize: Some(normalize),
        };
        let name = self.free_name("normalize");
        let rows = self.push_value(Value::result(&name, 0, vec![1, height * width, 3]));
        let mut nodes = vec![self.node(&name, Op::PatchExtract(extract), pixels, rows)];
        let reshape = Op::Reshape(Reshape {
            extents: vec![1, height, width, 3],
            batch: self.first_input().per_image.then_some(0),
        });
        if channels_last {
            nodes.push(self.node("normalize.image", reshape, rows, values));
            return nodes;
        }
        let name = self.free_name("normalize.image");
        let image = self.push_value(Value::result(&name, 0, vec![1, height, width, 3]));
        nodes.push(self.node(&name, reshape, rows, image));
        let planes = Op::Permute(Permute::to_channels_last(4).inverse());
        nodes.push(self.node("normalize.planes", planes, image, values));
        nodes
    }

    /// Returns a node with one operand and one result.
    fn node(&self, name: &str, op: Op, input: ValueId, output: ValueId) -> Node {
        let mut name = name.to_owned();
        while self.nodes.iter().any(|node| node.name == name) {
            name.push('\'');
        }
        Node {
            name,
            op,
            inputs: vec![input],
            outputs: vec![output],
            role: Role::Patch,
        }
    }

    /// Returns `name`, or a longer one if a value or node has this name.
    fn free_name(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.values.iter().any(|value| value.name == name)
            || self.nodes.iter().any(|node| node.name == name)
        {
            name.push('\'');
        }
        name
    }
}
