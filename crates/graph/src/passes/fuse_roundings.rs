//! Fuses an activation, or its derivative, into the rounding to FP8 after it. One kernel then reads and writes the numbers once.

use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{ActivationBackward, Float8Source, Op, RoundFloat8};
use crate::rewrite::{Rewriter, Rewritten, rewrite};
use crate::value::ValueId;

/// Counts the ops that became part of a rounding.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Op::RoundFloat8(
            rounding @ RoundFloat8 {
                source: Float8Source::Value,
                ..
            },
        ) = node.op
        else {
            return Ok(None);
        };
        let Some((source, operands)) = fused(rewriter, node) else {
            return Ok(None);
        };
        let op = RoundFloat8 { source, ..rounding };
        let operands = rewriter.map_all(&operands);
        rewriter.emit(node.role, &node.name, op, operands).map(Some)
    })
}

/// Returns the numbers that a rounding can compute itself, and its operands then.
fn fused(rewriter: &Rewriter<'_>, node: &Node) -> Option<(Float8Source, Vec<ValueId>)> {
    let [x, statistics] = *node.inputs.as_slice() else {
        return None;
    };
    let producer = rewriter.sole_producer(x)?;
    match producer.op {
        Op::Activation(activation) => {
            let source = Float8Source::Activation(activation);
            Some((source, vec![producer.inputs[0], statistics]))
        }
        Op::ActivationBackward(ActivationBackward {
            activation,
            secant: false,
            sums: false,
        }) => {
            let source = Float8Source::Slope(activation);
            Some((source, vec![producer.inputs[0], statistics, producer.inputs[1]]))
        }
        _ => None,
    }
}
