//! Results that are written to the memory of the states that they update.

use std::collections::HashMap;

use crate::graph::{Graph, Node};
use crate::op::Op;
use crate::value::ValueId;

/// Returns the results whose op `writes` in place, each with the state that it updates: only the update needs the result as an output, and no
/// later node reads the old state. An op that replaces rows must replace rows of that state, which no other node reads. Empty if memory is not reused.
pub fn updated_in_place(graph: &Graph, writes: impl Fn(&Op) -> bool) -> HashMap<ValueId, ValueId> {
    if !graph.optimizations().memory_reuse {
        return HashMap::new();
    }
    let mut first_read = HashMap::new();
    let mut last_read = HashMap::new();
    let mut producers = HashMap::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        node.inputs.iter().for_each(|&id| {
            first_read.entry(id).or_insert(index);
        });
        last_read.extend(node.inputs.iter().map(|&id| (id, index)));
        producers.extend(node.outputs.iter().map(|&id| (id, index)));
    }
    let mut kept: HashMap<ValueId, usize> = HashMap::new();
    let outputs = graph.outputs().iter().map(|(_, id)| id);
    for id in outputs.chain(graph.updates().iter().map(|(_, id)| id)) {
        *kept.entry(*id).or_default() += 1;
    }
    let is_in_place = |&&(state, result): &&(ValueId, ValueId)| {
        let Some(&index) = producers.get(&result) else {
            return false;
        };
        let Node { op, inputs, .. } = &graph.nodes()[index];
        // Steps that replace rows can run again, since none reads what they replace.
        let is_target = !op.replaces_rows()
            || inputs.first() == Some(&state)
                && !inputs.iter().skip(1).any(|&operand| operand == state)
                && first_read.get(&state) == Some(&index);
        let is_read_later = last_read.get(&state).is_some_and(|&read| read > index);
        kept[&result] == 1 && is_target && !is_read_later && writes(op)
    };
    let updates = graph.updates().iter().filter(is_in_place);
    updates.map(|&(state, result)| (result, state)).collect()
}
