//! Pads rows of tokens between two transpositions to whole vectors: of 196 tokens in 16 bits, rows begin at multiples of 8 bytes
//! only, and libraries have but slow GEMMs for such matrices.
//!
//! The first transposition writes zeros after each row, the layers' weights have zeros where they multiply these, and rows of zeros
//! for as many outputs more, which the next layer multiplies by zeros or the last transposition leaves out.

use crate::error::Result;
use crate::op::{Linear, Op, Rounding, Transpose};
use crate::rewrite::{Rewriter, Rewritten, rewrite, sized};
use crate::{Change, Graph, Node, ValueId};

/// Elements of 16 bits in a vector of 16 bytes.
pub(super) const VECTOR: usize = 8;

/// Counts the pairs of transpositions with longer rows between them.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Some(between) = Between::of(rewriter, node) else {
            return Ok(None);
        };
        let width = |id: ValueId| graph.value(id).shape.last().copied().unwrap_or(0);
        let padding = |id: ValueId| match width(id) {
            tokens if tokens > VECTOR => tokens.next_multiple_of(VECTOR) - tokens,
            _ => 0,
        };
        let mut all = std::iter::once(&between.first).chain(&between.layers);
        if all.all(|node| padding(node.output()) == 0) {
            return Ok(None);
        }
        let (first, mut pad) = (between.first, padding(between.first.output()));
        let op = Op::Transpose(Transpose {
            pad,
            ..between.spec_of_first
        });
        let inputs = rewriter.map_all(&first.inputs);
        let mut y = rewriter.emit(first.role, &first.name, op, inputs)?;
        for layer in between.layers {
            let columns = width(layer.inputs[0]) + pad;
            pad = padding(layer.output());
            y = padded(rewriter, layer, y, [width(layer.output()) + pad, columns])?;
        }
        let op = Op::Transpose(Transpose {
            crop: pad,
            ..between.spec_of_last
        });
        let mut inputs = rewriter.map_all(&node.inputs);
        inputs[0] = y;
        rewriter.emit(node.role, &node.name, op, inputs).map(Some)
    })
}

/// Layers of which each alone reads the one before, from one transposition to the next.
struct Between<'a> {
    first: &'a Node,
    spec_of_first: Transpose,
    /// At least one, with weights that are not quantised.
    layers: Vec<&'a Node>,
    spec_of_last: Transpose,
}

impl<'a> Between<'a> {
    fn of(rewriter: &Rewriter<'a>, last: &Node) -> Option<Self> {
        let Op::Transpose(spec_of_last) = last.op else {
            return None;
        };
        let mut layers = Vec::new();
        let mut id = last.inputs[0];
        loop {
            let node = rewriter.sole_producer(id)?;
            match node.op {
                Op::Transpose(spec @ Transpose { combine: None, .. }) if !layers.is_empty() => {
                    layers.reverse();
                    return Some(Self {
                        first: node,
                        spec_of_first: spec,
                        layers,
                        spec_of_last,
                    });
                }
                Op::Linear(Linear {
                    residual: false,
                    rounding,
                    ..
                }) if !rounding.is_some_and(Rounding::is_to_8_bits) => {
                    for &id in &node.inputs[1..] {
                        rewriter.tensor(id).filter(|tensor| !tensor.has_scales())?;
                    }
                    layers.push(node);
                    id = node.inputs[0];
                }
                _ => return None,
            }
        }
    }
}

/// `layer` over the new value `x`, its weight `[rows, columns]`.
fn padded(
    rewriter: &mut Rewriter<'_>,
    layer: &Node,
    x: ValueId,
    [rows, columns]: [usize; 2],
) -> Result<ValueId> {
    let mut inputs = vec![x];
    for (&id, shape) in layer.inputs[1..]
        .iter()
        .zip([&[rows, columns] as &[usize], &[rows]])
    {
        let same = rewriter.tensor(id).is_some_and(|tensor| tensor.shape() == shape);
        inputs.push(if same {
            rewriter.map(id)
        } else {
            let tensor = rewriter.tensor(id).and_then(|tensor| tensor.padded(shape));
            let tensor = sized(layer, tensor)?;
            rewriter.constant(rewriter.provenance(id).then(Change::Padded), tensor)
        });
    }
    rewriter.emit(layer.role, &layer.name, layer.op.clone(), inputs)
}
