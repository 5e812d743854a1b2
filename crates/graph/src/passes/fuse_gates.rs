//! Fuses the layer norm of a gate's result with the gate, so that the result is neither stored nor read (EVA-02).

use crate::error::Result;
use crate::graph::Graph;
use crate::op::{LayerNorm, Op, SwiGlu, SwiGluNorm};
use crate::rewrite::{Rewritten, rewrite};

/// Counts the norms that became part of a gate.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Op::LayerNorm(LayerNorm { epsilon }) = node.op else {
            return Ok(None);
        };
        let Some(gate) = rewriter.sole_producer(node.inputs[0]) else {
            return Ok(None);
        };
        // Of all channels, not of each head's.
        let of_gate = graph.value(gate.output()).shape.last();
        let of_norm = graph.value(node.inputs[1]).shape.last();
        if gate.op != Op::SwiGlu(SwiGlu) || of_gate != of_norm {
            return Ok(None);
        }
        let inputs = rewriter.map_all(&[gate.inputs[0], node.inputs[1], node.inputs[2]]);
        let op = Op::SwiGluNorm(SwiGluNorm { epsilon, padding: 0 });
        rewriter.emit(node.role, &node.name, op, inputs).map(Some)
    })
}
