//! Joins two graphs.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};

/// Appends the nodes of `part` to a graph. Its inputs are these values of the graph. Returns its outputs.
///
/// Nodes are named `<prefix>.…`, and `blocks.<index>.<prefix>.…` in blocks.
pub(super) fn splice(
    graph: &mut Graph,
    part: &Graph,
    inputs: &[(ValueId, ValueId)],
    prefix: &str,
) -> Result<Vec<ValueId>> {
    let mut map: HashMap<ValueId, ValueId> = inputs.iter().copied().collect();
    for id in part.ids() {
        let value = part.value(id);
        if let (Some(tensor), Some(provenance)) = (&value.constant, &value.provenance) {
            map.insert(id, graph.constant(provenance.clone(), tensor.clone()));
        }
    }
    let mapped = |map: &HashMap<ValueId, ValueId>, id: ValueId| {
        let found = map.get(&id).copied();
        found.ok_or_else(|| Error::graph(&part.value(id).name, "is read before it is computed"))
    };
    for node in part.nodes() {
        let inputs = node.inputs.iter().map(|&id| mapped(&map, id));
        let inputs = inputs.collect::<Result<_>>()?;
        let name = name_of(&node.name, prefix);
        let copy = graph.push_node(node.role, name, node.op.clone(), inputs)?;
        map.extend(node.outputs.iter().copied().zip(copy.outputs.iter().copied()));
    }
    let outputs = part.outputs().iter();
    outputs.map(|&(_, id)| mapped(&map, id)).collect()
}

/// Returns the name of a node beside one of an equal name.
fn name_of(name: &str, prefix: &str) -> String {
    let in_block = name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.'));
    match in_block {
        Some((block, rest)) => format!("blocks.{block}.{prefix}.{rest}"),
        None => format!("{prefix}.{name}"),
    }
}
