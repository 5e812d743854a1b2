//! Results that are written to the memory of the states that they update.

use std::collections::HashMap;

use crate::graph::{Graph, ValueId, updated_in_place};
use crate::ops::Op;

/// The results of a graph that need no copy: their nodes write the new elements of a state to the state itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct InPlace(HashMap<ValueId, Target>);

#[derive(Clone, Copy, Debug)]
struct Target {
    state: ValueId,
    /// True if the op only [replaces rows](crate::ops::Definition::replaces_rows).
    replaces_rows: bool,
}

impl InPlace {
    /// Returns the results whose op writes in place, and whose state no later node reads.
    pub(crate) fn of(graph: &Graph, updates_in_place: impl Fn(&Op) -> bool) -> Self {
        let rows = updated_in_place(graph, Op::replaces_rows);
        let all = updated_in_place(graph, |op| op.replaces_rows() || updates_in_place(op));
        let target = |(result, state)| {
            let replaces_rows = rows.contains_key(&result);
            (result, Target { state, replaces_rows })
        };
        Self(all.into_iter().map(target).collect())
    }

    /// Returns the state that a result is written to. `None` if it is written to the arena.
    pub(crate) fn state(&self, result: ValueId) -> Option<ValueId> {
        Some(self.0.get(&result)?.state)
    }

    /// Returns true if only some rows of the state are written.
    pub(crate) fn replaces_rows(&self, result: ValueId) -> bool {
        self.0.get(&result).is_some_and(|target| target.replaces_rows)
    }

    /// Returns true if steps can run again on the same input without a copy of the states: they write nothing in place, or only rows that do
    /// not depend on the states.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.0.values().all(|target| target.replaces_rows)
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
            assert_eq!(in_place.is_repeatable(), reads_later);
        }
    }
}
