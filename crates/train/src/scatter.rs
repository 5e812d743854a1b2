//! From the tensors of a checkpoint to the constants of its graph, and back.

use std::collections::HashMap;

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, Role, ValueId};
use hipvit::model::{Checkpoint, Copies, TensorValues};

use crate::trained::{TensorInfo, TensorRule, Trained};

/// A tensor of the checkpoint that is not trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// Name in the weight file.
    pub tensor: String,
    /// Reason.
    pub reason: &'static str,
}

/// The constants of a graph that are trained, and the tensors that their elements belong to.
#[derive(Debug, Default)]
pub(crate) struct Scatter {
    pub(crate) trained: Vec<Trained>,
    pub(crate) frozen: Vec<Frozen>,
    copies: Vec<Copies>,
    /// Name and shape of each tensor.
    tensors: Vec<(String, Vec<usize>)>,
}

impl Scatter {
    /// Asks `rule` for each tensor.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph computes with several tensors as one, and the rules of these tensors differ.
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        graph: &Graph,
        copies: &HashMap<ValueId, Copies>,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
    ) -> Result<Self> {
        let tensors = checkpoint.tensors();
        let mut this = Self {
            tensors: tensors
                .map(|(name, shape)| (name.to_owned(), shape.to_vec()))
                .collect(),
            ..Self::default()
        };
        let layers = layers(graph);
        let states = this.states(graph, copies);
        let infos = this
            .tensors
            .iter()
            .enumerate()
            .map(|(index, (name, shape))| TensorInfo {
                name,
                shape,
                layer: layers.of(graph, copies, index),
                layers: layers.count,
            });
        let rules: Vec<TensorRule> = infos.map(|info| rule(&info)).collect();
        let mut ids: Vec<&ValueId> = copies.keys().collect();
        ids.sort();
        for &id in ids {
            let copied = &copies[&id];
            let mut parts = copied.parts.iter().map(|part| part.tensor);
            let Some(first) = parts.next() else {
                continue;
            };
            if let Some(other) = parts.find(|&other| rules[other] != rules[first]) {
                let names = [first, other].map(|index| this.tensors[index].0.as_str());
                let reason = format!(
                    "`{}` and `{}` are computed as one weight, so they need the same rule",
                    names[0], names[1]
                );
                return Err(Error::argument("rule", reason));
            }
            if rules[first].trained && states[first] == State::Trained {
                this.trained.push(Trained {
                    id,
                    rule: rules[first],
                    mask: mask(graph, id, copied),
                    is_f32: false,
                });
                this.copies.push(copied.clone());
            }
        }
        for (index, state) in states.iter().enumerate() {
            let reason = match state {
                _ if !rules[index].trained => "the options exclude it",
                State::Trained => continue,
                State::Unused => "the loss does not depend on it",
                State::Shared => "the graph has several copies of its elements",
                State::Computed => "the graph has values that are computed from it before training",
            };
            this.freeze(index, reason);
        }
        Ok(this)
    }

    fn freeze(&mut self, index: usize, reason: &'static str) {
        let tensor = self.tensors[index].0.clone();
        self.frozen.push(Frozen { tensor, reason });
    }

    /// Returns which tensors can be trained. All tensors of a constant can, or none.
    fn states(&self, graph: &Graph, copies: &HashMap<ValueId, Copies>) -> Vec<State> {
        let mut states = vec![State::Unused; self.tensors.len()];
        let mut ranges: Vec<Vec<[usize; 2]>> = vec![Vec::new(); states.len()];
        for copied in copies.values() {
            for part in &copied.parts {
                let state = if copied.is_exact {
                    State::Trained
                } else {
                    State::Computed
                };
                states[part.tensor] = states[part.tensor].max(state);
                ranges[part.tensor].push([part.from, part.from + part.len]);
            }
        }
        for (state, ranges) in states.iter_mut().zip(&mut ranges) {
            ranges.sort_unstable();
            if ranges.windows(2).any(|pair| pair[1][0] < pair[0][1]) {
                *state = (*state).max(State::Shared);
            }
        }
        self.mark_computed(graph, copies, &mut states);
        // A constant with rows of several tensors is trained as a whole.
        loop {
            let mut changed = false;
            for copied in copies.values() {
                let worst = copied.parts.iter().map(|part| states[part.tensor]).max();
                for part in &copied.parts {
                    let state = &mut states[part.tensor];
                    let new = worst.unwrap_or(*state);
                    changed |= *state != new;
                    *state = new;
                }
            }
            if !changed {
                return states;
            }
        }
    }

    /// Marks the tensors without a copy in the graph that constants are computed from.
    fn mark_computed(&self, graph: &Graph, copies: &HashMap<ValueId, Copies>, states: &mut [State]) {
        for name in copies.keys().flat_map(|id| graph.value(*id).tensors()) {
            // The checkpoint's names are sorted.
            let place = self
                .tensors
                .binary_search_by(|(other, _)| other.as_str().cmp(name));
            if let Ok(index) = place {
                states[index] = match states[index] {
                    State::Unused => State::Computed,
                    other => other,
                };
            }
        }
    }

    /// Drops the constants that the loss does not depend on, which `weights` has no name for. Returns the names of the others.
    pub(crate) fn retain(&mut self, weights: Vec<Option<String>>) -> Vec<String> {
        let copies = std::mem::take(&mut self.copies);
        let mut names = Vec::new();
        for (copied, name) in copies.into_iter().zip(weights) {
            if let Some(name) = name {
                names.push(name);
                self.copies.push(copied);
            } else {
                for part in &copied.parts {
                    self.freeze(part.tensor, "the loss does not depend on it");
                }
            }
        }
        self.frozen.sort_by(|a, b| a.tensor.cmp(&b.tensor));
        self.frozen.dedup();
        names
    }

    /// Returns the origin of each trained constant's elements.
    pub(crate) fn copies(&self) -> &[Copies] {
        &self.copies
    }

    /// Returns the number of trained elements.
    pub(crate) fn elements(&self) -> u64 {
        let parts = self.copies.iter().flat_map(|copied| &copied.parts);
        parts.map(|part| part.len as u64).sum()
    }

    /// Returns the tensors with the elements of the trained constants, which `elements` returns by their index.
    ///
    /// # Errors
    ///
    /// The errors of `elements` and of reading the checkpoint.
    pub(crate) fn tensors(
        &self,
        checkpoint: &Checkpoint,
        elements: impl Fn(usize) -> Result<Vec<f32>>,
    ) -> Result<TensorValues> {
        let mut values = TensorValues::new();
        for (index, copied) in self.copies.iter().enumerate() {
            let elements = elements(index)?;
            for part in &copied.parts {
                let (name, _) = &self.tensors[part.tensor];
                if !values.contains_key(name) {
                    values.insert(name.clone(), checkpoint.tensor(name)?.to_f32().into_owned());
                }
                if let Some(tensor) = values.get_mut(name) {
                    tensor[part.from..part.from + part.len]
                        .copy_from_slice(&elements[part.to..part.to + part.len]);
                }
            }
        }
        Ok(values)
    }
}

/// What becomes of a tensor. A later one takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Unused,
    Trained,
    Shared,
    Computed,
}

/// Returns the mask of a constant with elements that belong to no tensor.
fn mask(graph: &Graph, id: ValueId, copied: &Copies) -> Option<Vec<f32>> {
    let len: usize = graph.value(id).shape.iter().product();
    if copied.parts.iter().map(|part| part.len).sum::<usize>() == len {
        return None;
    }
    let mut mask = vec![0.0; len];
    for part in &copied.parts {
        mask[part.to..part.to + part.len].fill(1.0);
    }
    Some(mask)
}

/// First layer that reads each value.
struct Layers {
    of_value: HashMap<ValueId, usize>,
    count: usize,
}

fn layers(graph: &Graph) -> Layers {
    let blocks = graph.nodes().iter().filter_map(Node::block);
    let count = blocks.max().map_or(1, |last| last + 2);
    let mut of_value: HashMap<ValueId, usize> = HashMap::new();
    for node in graph.nodes().iter().rev() {
        let layer = match (node.block(), node.role) {
            (Some(block), _) => block + 1,
            (None, Role::Patch) => 0,
            // Positions that a network computes for attention.
            (None, Role::Attention) => of_value.get(&node.output()).copied().unwrap_or(count),
            (None, _) => count,
        };
        for &id in &node.inputs {
            let first = of_value.entry(id).or_insert(layer);
            *first = layer.min(*first);
        }
    }
    Layers { of_value, count }
}

impl Layers {
    /// Returns the first layer that reads a tensor.
    fn of(&self, graph: &Graph, copies: &HashMap<ValueId, Copies>, tensor: usize) -> usize {
        let reads = |id: &ValueId| {
            copies
                .get(id)
                .is_some_and(|of| of.parts.iter().any(|part| part.tensor == tensor))
        };
        let layers = graph
            .ids()
            .filter(reads)
            .filter_map(|id| self.of_value.get(&id).copied());
        layers.min().unwrap_or(self.count)
    }
}
