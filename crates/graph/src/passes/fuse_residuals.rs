//! Fuses the addition of a residual into the Linear, the Conv, the Transpose or the derivative of a layer norm before it.

use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Add, Combine, Conv, LayerNormBackward, Linear, Op, Transpose};
use crate::rewrite::{Rewritten, rewrite};
use crate::value::ValueId;

/// Counts the additions that became part of another op.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    // What one batch broadcasts is no residual, and shows only where the batch is not 1.
    let shapes = graph.shapes(2)?;
    rewrite(graph, |rewriter, node| {
        let (Op::Add(Add), &[x, y]) = (&node.op, node.inputs.as_slice()) else {
            return Ok(None);
        };
        if shapes[x.index()] != shapes[y.index()] {
            return Ok(None);
        }
        // `skip + branch`, as models are written, comes first.
        for (branch, residual) in [(y, x), (x, y)] {
            let Some(producer) = rewriter.sole_producer(branch) else {
                continue;
            };
            let op = match producer.op {
                Op::Linear(linear @ Linear { residual: false, .. }) => Some(Op::Linear(Linear {
                    residual: true,
                    ..linear
                })),
                Op::Conv(conv @ Conv { residual: false, .. }) => Some(Op::Conv(Conv {
                    residual: true,
                    ..conv
                })),
                Op::Transpose(transpose @ Transpose { combine: None, .. }) => {
                    Some(Op::Transpose(Transpose {
                        combine: Some(Combine::Add),
                        ..transpose
                    }))
                }
                // A gradient of the residual stream.
                Op::LayerNormBackward(norm @ LayerNormBackward { residual: false, .. })
                    if branch == producer.output() && !reads_before(graph, node, &producer.outputs[1..]) =>
                {
                    Some(Op::LayerNormBackward(LayerNormBackward {
                        residual: true,
                        ..norm
                    }))
                }
                _ => None,
            };
            if let Some(op) = op {
                let mut inputs = rewriter.map_all(&producer.inputs);
                inputs.push(rewriter.map(residual));
                let results = rewriter.emit_node(producer.role, &producer.name, op, inputs)?;
                for (&old, &new) in producer.outputs.iter().zip(&results).skip(1) {
                    rewriter.replace(old, new);
                }
                return Ok(results.first().copied());
            }
        }
        Ok(None)
    })
}

/// Returns true if a node before `node` reads one of `values`: the gradients of a norm that several layers share, which are added up.
fn reads_before(graph: &Graph, node: &Node, values: &[ValueId]) -> bool {
    let before = graph.nodes().iter().take_while(|other| other.name != node.name);
    before
        .flat_map(|other| &other.inputs)
        .any(|id| values.contains(id))
}
