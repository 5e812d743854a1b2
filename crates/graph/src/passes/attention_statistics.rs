//! Makes the statistics of each attention's softmax its second result, and an output.

use crate::error::{Error, Result};
use crate::graph::{Graph, OutputKind};
use crate::op::Op;
use crate::rewrite::Rewritten;
use crate::value::Value;

/// Counts the attentions.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    let mut new = graph.clone();
    let mut layers = 0;
    for index in 0..new.nodes.len() {
        let node = &mut new.nodes[index];
        let Op::Attention(spec) = &mut node.op else {
            continue;
        };
        spec.statistics = true;
        let operands: Vec<&[usize]> = node
            .inputs
            .iter()
            .map(|id| new.values[id.index()].shape.as_slice())
            .collect();
        let shapes = node.op.shapes(&operands);
        let mut shapes = shapes.map_err(|source| Error::op(&node.name, &node.op, source))?;
        let value = Value::result(&node.name, 1, shapes.swap_remove(1));
        let value = new.push_value(value);
        new.nodes[index].outputs.push(value);
        new.set_output(OutputKind::AttentionStatistics(layers), value);
        layers += 1;
    }
    Ok(Rewritten {
        graph: new,
        changes: layers,
    })
}
