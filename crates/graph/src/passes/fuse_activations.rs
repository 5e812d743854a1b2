//! Fuses an activation into the Linear before it.

use crate::error::Result;
use crate::graph::Graph;
use crate::op::{Linear, Op};
use crate::rewrite::{Rewritten, rewrite};

/// Counts the activations that became part of a Linear.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Op::Activation(activation) = node.op else {
            return Ok(None);
        };
        let Some(producer) = rewriter.sole_producer(node.inputs[0]) else {
            return Ok(None);
        };
        match producer.op {
            Op::Linear(
                linear @ Linear {
                    activation: None,
                    residual: false,
                    ..
                },
            ) => {
                let op = Op::Linear(Linear {
                    activation: Some(activation),
                    ..linear
                });
                let inputs = rewriter.map_all(&producer.inputs);
                rewriter.emit(producer.role, &producer.name, op, inputs).map(Some)
            }
            _ => Ok(None),
        }
    })
}
