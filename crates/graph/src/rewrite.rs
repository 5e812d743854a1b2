//! Rewriting of a graph node by node in topological order, so that order and shapes are correct by construction. Nodes without a reader are
//! dropped at the end.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Role};
use crate::op::{Linear, Op, Rounding};
use crate::provenance::Provenance;
use crate::tensor::Tensor;
use crate::value::{GraphInput, ValueId, ValueKind};

/// Result of a pass.
#[derive(Debug)]
pub struct Rewritten {
    /// The new graph.
    pub graph: Graph,
    /// Number of times that the pass applied.
    pub changes: usize,
}

/// Builds a new graph from `old` by calling `visit` with every node. `visit` appends a replacement with [`Rewriter::emit`] and returns its
/// first value. If it returns `None`, the node is kept.
///
/// A pass that merges a node into its consumer acts at the consumer. The merged node is kept, found unused, and dropped.
///
/// # Errors
///
/// Errors of `visit`. [`Error::Op`] if a kept node rejects its new operands.
pub fn rewrite<'a>(
    old: &'a Graph,
    mut visit: impl FnMut(&mut Rewriter<'a>, &'a Node) -> Result<Option<ValueId>>,
) -> Result<Rewritten> {
    // Compiled once, not for each pass.
    visit_all(old, &mut visit)
}

/// Appends a node's replacement, and returns its first value.
type Visit<'v, 'a> = &'v mut dyn FnMut(&mut Rewriter<'a>, &'a Node) -> Result<Option<ValueId>>;

fn visit_all<'a>(old: &'a Graph, visit: Visit<'_, 'a>) -> Result<Rewritten> {
    let mut rewriter = Rewriter::new(old);
    let mut changes = 0;
    for node in &old.nodes {
        let outputs = match visit(&mut rewriter, node)? {
            Some(replacement) => {
                changes += 1;
                rewriter.results(replacement, node.outputs.len())
            }
            None => {
                let inputs = rewriter.map_all(&node.inputs);
                let (name, op) = (node.name.clone(), node.op.clone());
                rewriter
                    .new
                    .push_node(node.role, name, op, inputs)?
                    .outputs
                    .clone()
            }
        };
        rewriter.map.extend(node.outputs.iter().copied().zip(outputs));
    }
    for &(kind, id) in &old.outputs {
        let id = rewriter.map(id);
        rewriter.new.set_output(kind, id);
    }
    for &(to, result) in &old.updates {
        let update = (rewriter.map(to), rewriter.map(result));
        rewriter.new.updates.push(update);
    }
    Ok(Rewritten {
        graph: rewriter.new.without_dead_code(),
        changes,
    })
}

/// The old graph, read-only, and the new one.
#[derive(Debug)]
pub struct Rewriter<'a> {
    old: &'a Graph,
    new: Graph,
    /// New value of each old value.
    map: HashMap<ValueId, ValueId>,
    producers: HashMap<ValueId, &'a Node>,
    /// Number of reads of each old value, by nodes and as an output.
    uses: Vec<usize>,
    names: HashSet<String>,
}

/// An [`Op::Linear`] with constant weights and nothing fused into it but its bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainLinear<'a> {
    pub(super) node: &'a Node,
    pub(super) weight: &'a Tensor,
    pub(super) bias: Option<&'a Tensor>,
    /// See [`Linear::rounding`].
    pub(super) rounding: Option<Rounding>,
}

impl<'a> PlainLinear<'a> {
    /// Returns `node` of `graph` as a plain Linear. `None` if it is not one.
    pub(super) fn of(graph: &'a Graph, node: &'a Node) -> Option<Self> {
        let Op::Linear(Linear {
            bias,
            activation: None,
            residual: false,
            rounding,
        }) = node.op
        else {
            return None;
        };
        let tensor = |id: ValueId| graph.value(id).constant.as_ref();
        Some(Self {
            node,
            weight: tensor(node.inputs[1])?,
            bias: if bias { Some(tensor(node.inputs[2])?) } else { None },
            rounding,
        })
    }

    /// Returns true if it is multiplied in 8 bits.
    pub(super) fn is_in_8_bits(&self) -> bool {
        self.rounding.is_some_and(Rounding::is_to_8_bits)
    }

    /// Returns the old value that it multiplies.
    pub(super) fn x(&self) -> ValueId {
        self.node.inputs[0]
    }
}

impl<'a> Rewriter<'a> {
    fn new(old: &'a Graph) -> Self {
        let mut uses = vec![0; old.values.len()];
        let inputs = old.nodes.iter().flat_map(|node| &node.inputs);
        let outputs = old.outputs.iter().map(|(_, id)| id);
        let updates = old.updates.iter().map(|(_, result)| result);
        for id in inputs.chain(outputs).chain(updates) {
            uses[id.index()] += 1;
        }
        let input = &old.values[old.input.index()];
        let mut new = Graph::new(&old.name, [1; 4], input.dtype);
        new.values[0] = input.clone();
        new.optimizations = old.optimizations;
        new.first_input = old.first_input;
        new.output_names = old.output_names.clone();
        new.shard = old.shard;
        let mut map = HashMap::from([(old.input, new.input)]);
        for input in &old.more_inputs {
            let value = new.push_value(old.value(input.value).clone());
            map.insert(input.value, value);
            new.more_inputs.push(GraphInput { value, ..*input });
        }
        Self {
            old,
            map,
            new,
            producers: old
                .nodes
                .iter()
                .flat_map(|node| node.outputs.iter().map(move |&id| (id, node)))
                .collect(),
            uses,
            names: old
                .values
                .iter()
                .filter(|value| value.kind != ValueKind::Result)
                .map(|value| value.name.clone())
                .collect(),
        }
    }

    /// Returns the node that computes the old value `id`.
    pub fn producer(&self, id: ValueId) -> Option<&'a Node> {
        self.producers.get(&id).copied()
    }

    /// Returns the node that computes the old value `id`, if only one operand of one node reads it.
    pub fn sole_producer(&self, id: ValueId) -> Option<&'a Node> {
        self.producer(id).filter(|_| self.uses[id.index()] == 1)
    }

    /// Returns the number of operands that read the old value `id`. An output and an update of a state count as one each.
    pub fn readers(&self, id: ValueId) -> usize {
        self.uses[id.index()]
    }

    /// Returns the tensor of the old value `id`, if it is a constant.
    pub fn tensor(&self, id: ValueId) -> Option<&'a Tensor> {
        self.old.value(id).constant.as_ref()
    }

    /// Returns the plain Linear that computes the old value `id`, if `id` has no other reader.
    pub(super) fn plain_linear(&self, id: ValueId) -> Option<PlainLinear<'a>> {
        PlainLinear::of(self.old, self.sole_producer(id)?)
    }

    /// Returns the new value for the old value `id`.
    pub fn map(&mut self, id: ValueId) -> ValueId {
        if let Some(&new) = self.map.get(&id) {
            return new;
        }
        // Results were entered when their node was visited, so a missing value is a constant that was not used yet.
        let new = self.new.push_value(self.old.value(id).clone());
        self.map.insert(id, new);
        new
    }

    /// Returns the new values for old ones.
    pub fn map_all(&mut self, ids: &[ValueId]) -> Vec<ValueId> {
        ids.iter().map(|&id| self.map(id)).collect()
    }

    /// Adds a constant that the pass computed, named by its provenance. Appends a number if the name is taken.
    pub fn constant(&mut self, provenance: Provenance, tensor: Tensor) -> ValueId {
        let name = provenance.to_string();
        let mut unique = name.clone();
        let mut count = 1;
        while !self.names.insert(unique.clone()) {
            count += 1;
            unique = format!("{name} #{count}");
        }
        self.new.push_constant(unique, provenance, tensor)
    }

    /// Appends a node over new values.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the op rejects the shapes of the operands.
    pub fn emit(
        &mut self,
        role: Role,
        name: &str,
        op: impl Into<Op>,
        inputs: impl Into<Vec<ValueId>>,
    ) -> Result<ValueId> {
        self.new.push(role, name, op, inputs)
    }

    /// Appends a node over new values, and returns all of its results.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] if the op rejects the shapes of the operands.
    pub fn emit_node(
        &mut self,
        role: Role,
        name: &str,
        op: impl Into<Op>,
        inputs: impl Into<Vec<ValueId>>,
    ) -> Result<Vec<ValueId>> {
        let node = self
            .new
            .push_node(role, name.to_owned(), op.into(), inputs.into())?;
        Ok(node.outputs.clone())
    }

    /// Replaces the old value `old` by the new value `new` in all nodes that are visited later.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        self.map.insert(old, new);
    }

    /// Appends a Linear over the new value `x` with constants that the pass computed.
    pub(super) fn emit_linear(
        &mut self,
        role: Role,
        name: &str,
        x: ValueId,
        weight: (Provenance, Tensor),
        bias: Option<(Provenance, Tensor)>,
        rounding: Option<Rounding>,
    ) -> Result<ValueId> {
        let mut inputs = vec![x, self.constant(weight.0, weight.1)];
        let op = Op::Linear(Linear {
            bias: bias.is_some(),
            rounding,
            ..Linear::default()
        });
        inputs.extend(bias.map(|(provenance, tensor)| self.constant(provenance, tensor)));
        self.emit(role, name, op, inputs)
    }

    /// Returns the new value `first` and the following ones of its node, at most `count`.
    fn results(&self, first: ValueId, count: usize) -> Vec<ValueId> {
        let producer = (count > 1)
            .then(|| self.new.nodes.iter().rfind(|node| node.output() == first))
            .flatten();
        match producer {
            Some(node) => node.outputs.iter().copied().take(count).collect(),
            None => vec![first],
        }
    }

    /// Returns the provenance of the old value `id`. For a value that is not a constant, this is only its name.
    pub(super) fn provenance(&self, id: ValueId) -> Provenance {
        let value = self.old.value(id);
        let other = || Provenance::computed(&value.name, []);
        value.provenance.clone().unwrap_or_else(other)
    }

    /// Returns the name of the old value `id`.
    pub(super) fn name(&self, id: ValueId) -> &'a str {
        &self.old.value(id).name
    }
}

/// Returns the tensor that a pass computed for `node`.
///
/// # Errors
///
/// [`Error::Graph`] if its parts did not have the sizes that the node's shapes require.
pub(super) fn sized(node: &Node, tensor: Option<Tensor>) -> Result<Tensor> {
    tensor.ok_or_else(|| Error::graph(&node.name, "its constants do not have the sizes of its operands"))
}

impl Graph {
    /// Removes the nodes and values that no output depends on. The inputs stay.
    pub(super) fn without_dead_code(self) -> Self {
        let mut live = vec![false; self.values.len()];
        for input in self.inputs() {
            live[input.value.index()] = true;
        }
        for (_, id) in &self.outputs {
            live[id.index()] = true;
        }
        for id in self.updates.iter().flat_map(|(to, result)| [to, result]) {
            live[id.index()] = true;
        }
        for node in self.nodes.iter().rev() {
            if node.outputs.iter().any(|id| live[id.index()]) {
                for id in &node.outputs {
                    live[id.index()] = true;
                }
                for id in &node.inputs {
                    live[id.index()] = true;
                }
            }
        }
        let mut count = 0;
        let renamed: Vec<ValueId> = live
            .iter()
            .map(|&live| {
                let id = ValueId(count);
                count += u32::from(live);
                id
            })
            .collect();
        let rename = |id: ValueId| renamed[id.index()];
        let nodes = self.nodes.into_iter().filter(|node| live[node.output().index()]);
        Self {
            name: self.name,
            optimizations: self.optimizations,
            first_input: self.first_input,
            output_names: self.output_names,
            shard: self.shard,
            input: rename(self.input),
            more_inputs: self
                .more_inputs
                .into_iter()
                .map(|input| GraphInput {
                    value: rename(input.value),
                    ..input
                })
                .collect(),
            updates: self
                .updates
                .into_iter()
                .map(|(to, result)| (rename(to), rename(result)))
                .collect(),
            outputs: self
                .outputs
                .into_iter()
                .map(|(kind, id)| (kind, rename(id)))
                .collect(),
            nodes: nodes
                .map(|node| Node {
                    inputs: node.inputs.iter().map(|&id| rename(id)).collect(),
                    outputs: node.outputs.iter().map(|&id| rename(id)).collect(),
                    ..node
                })
                .collect(),
            values: self
                .values
                .into_iter()
                .zip(&live)
                .filter_map(|(value, &live)| live.then_some(value))
                .collect(),
        }
    }
}
