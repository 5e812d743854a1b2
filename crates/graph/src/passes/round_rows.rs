//! For GPUs: marks the results of norms that plans store in 8 bits, each row with the scale that its own elements decide.
//!
//! A norm's result is stored so if nothing but linear layers multiplies it, which all round it alike. Then the norm writes a fraction of
//! the bytes, and no kernel of its own reads and rounds them. What is multiplied is the same to the bit.

use std::collections::HashMap;

use crate::graph::{Graph, Node};
use crate::op::{Op, Rounding};
use crate::rewrite::Rewritten;
use crate::value::ValueId;

/// Counts the values.
pub(crate) fn run(graph: &Graph) -> Rewritten {
    let mut graph = graph.clone();
    let changes = mark(&mut graph);
    Rewritten { graph, changes }
}

/// Marks the values, and counts them.
pub(crate) fn mark(graph: &mut Graph) -> usize {
    // The rounding of a value's readers, while they agree.
    let mut of_readers: HashMap<ValueId, Option<Rounding>> = HashMap::new();
    for node in &graph.nodes {
        for (position, &id) in node.inputs.iter().enumerate() {
            let rounding = match &node.op {
                Op::Linear(spec) if position == 0 => spec.rounding.filter(|rounding| rounding.is_of_rows()),
                _ => None,
            };
            let known = of_readers.entry(id).or_insert(rounding);
            *known = known.filter(|&known| rounding == Some(known));
        }
    }
    for (_, id) in &graph.outputs {
        of_readers.insert(*id, None);
    }
    let norms = graph.nodes.iter().filter(|node| norms_rows(graph, node));
    let marked: Vec<(ValueId, Rounding)> = norms
        .filter_map(|node| Some((node.output(), of_readers.get(&node.output()).copied().flatten()?)))
        .collect();
    for &(id, rounding) in &marked {
        graph.values[id.index()].rounding = Some(rounding);
    }
    marked.len()
}

/// Whether the node norms the rows of a matrix, not parts of them, as the norms of heads do.
fn norms_rows(graph: &Graph, node: &Node) -> bool {
    let last = |id: ValueId| graph.value(id).shape.last();
    match node.op {
        Op::LayerNorm(_) | Op::RmsNorm(_) => last(node.inputs[1]) == last(node.output()),
        _ => false,
    }
}
