//! Fuses an activation into the Linear or the Conv before it.

use crate::error::Result;
use crate::graph::Graph;
use crate::op::{Conv, Linear, Op};
use crate::rewrite::{Rewritten, rewrite};

/// Counts the activations that became part of another op.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Op::Activation(activation) = node.op else {
            return Ok(None);
        };
        let Some(producer) = rewriter.sole_producer(node.inputs[0]) else {
            return Ok(None);
        };
        let op = match producer.op {
            Op::Linear(
                linear @ Linear {
                    activation: None,
                    residual: false,
                    ..
                },
            ) => Op::Linear(Linear {
                activation: Some(activation),
                ..linear
            }),
            Op::Conv(
                conv @ Conv {
                    activation: None,
                    residual: false,
                    ..
                },
            ) => Op::Conv(Conv {
                activation: Some(activation),
                ..conv
            }),
            _ => return Ok(None),
        };
        let inputs = rewriter.map_all(&producer.inputs);
        rewriter.emit(producer.role, &producer.name, op, inputs).map(Some)
    })
}
