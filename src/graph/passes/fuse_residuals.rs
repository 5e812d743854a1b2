//! Fuses the addition of a residual into the Linear before it.

use crate::error::Result;
use crate::graph::Graph;
use crate::graph::rewrite::{Rewritten, rewrite};
use crate::ops::{Linear, Op};

/// Counts the additions that became part of a Linear.
pub(in crate::graph) fn run(graph: &Graph) -> Result<Rewritten> {
    // What one batch broadcasts is no residual, and shows only where the batch is not 1.
    let shapes = graph.shapes(2)?;
    rewrite(graph, |rewriter, node| {
        let (Op::Add, &[x, y]) = (&node.op, node.inputs.as_slice()) else {
            return Ok(None);
        };
        if shapes[x.index()] != shapes[y.index()] {
            return Ok(None);
        }
        // `skip + branch`, as models are written, comes first.
        for (linear, residual) in [(y, x), (x, y)] {
            let Some(producer) = rewriter.sole_producer(linear) else {
                continue;
            };
            if let Op::Linear(linear @ Linear { residual: false, .. }) = producer.op {
                let op = Op::Linear(Linear {
                    residual: true,
                    ..linear
                });
                let mut inputs = rewriter.map_all(&producer.inputs);
                inputs.push(rewriter.map(residual));
                return rewriter.emit(producer.role, &producer.name, op, inputs).map(Some);
            }
        }
        Ok(None)
    })
}
