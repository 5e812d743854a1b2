//! The nodes of a training step with recomputations.

use std::collections::HashMap;

use super::forward::Forward;
use crate::graph::{Graph, Node};
use crate::value::{Value, ValueId};

/// The nodes of a step, with clones of nodes of the forward pass before the nodes of the backward pass that need them.
pub(super) struct Clones {
    pub(super) nodes: Vec<Node>,
    /// Results of the clones. Their ids follow those of the graph.
    values: Vec<Value>,
    /// Original of each result of a clone, in the order of [`Clones::values`].
    originals: Vec<ValueId>,
    /// True for each node of the forward pass that has a clone.
    cloned: Vec<bool>,
}

impl Clones {
    /// Recomputes the values that `dropped` selects by their index.
    pub(super) fn new(forward: &Forward<'_>, dropped: &[bool]) -> Self {
        let mut builder = Builder {
            forward,
            dropped,
            clones: Self {
                nodes: forward.graph.nodes()[..forward.len].to_vec(),
                values: Vec::new(),
                originals: Vec::new(),
                cloned: vec![false; forward.len],
            },
            copies: HashMap::new(),
        };
        for node in &forward.graph.nodes()[forward.len..] {
            let inputs = node.inputs.iter().map(|&id| builder.read(id)).collect();
            builder.clones.nodes.push(Node {
                inputs,
                ..node.clone()
            });
        }
        builder.clones
    }

    /// Returns true if a node of the forward pass has a clone.
    pub(super) fn has(&self, node: usize) -> bool {
        self.cloned[node]
    }

    /// Returns the originals of the results of clones, in the order of their ids.
    pub(super) fn originals(&self) -> &[ValueId] {
        &self.originals
    }

    /// Returns the graph with the clones.
    pub(super) fn graph(&self, forward: &Forward<'_>) -> Graph {
        let mut graph = forward.graph.clone();
        graph.values.extend(self.values.iter().cloned());
        graph.nodes.clone_from(&self.nodes);
        graph
    }
}

struct Builder<'a> {
    forward: &'a Forward<'a>,
    dropped: &'a [bool],
    clones: Clones,
    /// Recomputed value of each value.
    copies: HashMap<ValueId, ValueId>,
}

impl Builder<'_> {
    /// Returns the value that the next node reads in place of `id`. Appends the clones that compute it, if it is recomputed.
    fn read(&mut self, id: ValueId) -> ValueId {
        if let Some(&copy) = self.copies.get(&id) {
            return copy;
        }
        let graph = self.forward.graph;
        let producer = self.forward.producers[id.index()];
        let Some(index) = producer.filter(|_| self.forward.is_recomputed(id, self.dropped)) else {
            return id;
        };
        let node = &graph.nodes()[index];
        let inputs = node.inputs.iter().map(|&input| self.read(input)).collect();
        let outputs = node.outputs.iter().map(|&output| self.copy(output)).collect();
        self.clones.cloned[index] = true;
        self.clones.nodes.push(Node {
            name: recomputed(&node.name),
            inputs,
            outputs,
            ..node.clone()
        });
        self.copies.get(&id).copied().unwrap_or(id)
    }

    /// Appends the recomputed value of `id`.
    fn copy(&mut self, id: ValueId) -> ValueId {
        let graph = self.forward.graph;
        let value = graph.value(id);
        // A graph has at most thousands of values.
        let copy = ValueId((graph.values().len() + self.clones.values.len()) as u32);
        self.clones.values.push(Value {
            name: recomputed(&value.name),
            ..value.clone()
        });
        self.clones.originals.push(id);
        // Other results of the node, which are kept, are read from where they are.
        if self.forward.is_recomputed(id, self.dropped) {
            self.copies.insert(id, copy);
        }
        copy
    }
}

fn recomputed(name: &str) -> String {
    format!("{name}.recomputed")
}
