//! Puts the statistics of attention's softmax right behind it, with the same operands, so that a GPU computes both in one launch.

use crate::error::Result;
use crate::ops::Op;
use crate::rewrite::Rewritten;
use crate::{Graph, OutputKind};

/// Counts the attentions.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    let mut new = graph.clone();
    let mut layers = 0;
    for node in std::mem::take(&mut new.nodes) {
        let statistics = match node.op {
            Op::Attention(spec) => Some((format!("{}.statistics", node.name), spec, node.inputs.clone())),
            _ => None,
        };
        let role = node.role;
        new.nodes.push(node);
        if let Some((name, spec, inputs)) = statistics {
            let value = new.push(role, name, Op::AttentionStatistics(spec), inputs)?;
            new.set_output(OutputKind::AttentionStatistics(layers), value);
            layers += 1;
        }
    }
    Ok(Rewritten {
        graph: new,
        changes: layers,
    })
}
