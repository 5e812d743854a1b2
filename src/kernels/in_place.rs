//! Results that are written to the memory of the states that they update.

use std::collections::HashMap;

use crate::graph::{Graph, ValueId};
use crate::ops::Op;

/// The results of a graph that need no copy: their nodes write the new elements of a state to the state itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct InPlace(HashMap<ValueId, ValueId>);

impl InPlace {
    /// Returns the results whose op writes in place, and whose state no later node reads.
    pub(crate) fn of(graph: &Graph, updates_in_place: impl Fn(&Op) -> bool) -> Self {
        let mut last_read = HashMap::new();
        let mut producers = HashMap::new();
        for (index, node) in graph.nodes().iter().enumerate() {
            last_read.extend(node.inputs.iter().map(|&id| (id, index)));
            producers.extend(node.outputs.iter().map(|&id| (id, index)));
        }
        let mut readers: HashMap<ValueId, usize> = HashMap::new();
        let outputs = graph.outputs().iter().map(|(_, id)| id);
        for id in outputs.chain(graph.updates().iter().map(|(_, id)| id)) {
            *readers.entry(*id).or_default() += 1;
        }
        let is_in_place = |&&(state, result): &&(ValueId, ValueId)| {
            let producer = producers.get(&result);
            let is_read_later = last_read.get(&state) > producer;
            let op = producer.map(|&index| &graph.nodes()[index].op);
            readers[&result] == 1 && !is_read_later && op.is_some_and(&updates_in_place)
        };
        let reuses = graph.optimizations().memory_reuse;
        let updates = graph.updates().iter().filter(|_| reuses).filter(is_in_place);
        Self(updates.map(|&(state, result)| (result, state)).collect())
    }

    /// Returns the state that a result is written to. `None` if it is written to the arena.
    pub(crate) fn state(&self, result: ValueId) -> Option<ValueId> {
        self.0.get(&result).copied()
    }

    /// Returns true if all results are written to the arena.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Role;
    use crate::kernels::lower::Lower;
    use crate::ops::{Accumulate, Add};
    use crate::tensor::{DType, Tensor};

    #[test]
    fn a_state_that_is_read_later_is_not_overwritten() {
        for reads_later in [false, true] {
            let mut graph = Graph::new("sums", [1, 1, 1, 1], DType::F32);
            let state = |graph: &mut Graph, name: &str, len: usize| {
                let zeros = Tensor::from_f32([len], vec![0.0; len]);
                graph.state(name, zeros.unwrap())
            };
            let [sum, other] = ["sum", "other"].map(|name| state(&mut graph, name, 4));
            let keep = state(&mut graph, "keep", 1);
            let operands = [sum, other, keep];
            let new = graph
                .push(Role::Other, "accumulate", Accumulate, operands)
                .unwrap();
            let read = if reads_later { sum } else { new };
            let added = graph.push(Role::Other, "add", Add, [read, other]).unwrap();
            graph.update(sum, new).unwrap();
            graph.update(other, added).unwrap();
            let in_place = InPlace::of(&graph, Lower::updates_in_place);
            assert_eq!(in_place.state(new), (!reads_later).then_some(sum));
            // An addition is no update.
            assert_eq!(in_place.state(added), None);
            assert_eq!(in_place.is_empty(), reads_later);
        }
    }
}
