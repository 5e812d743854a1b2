//! For GPUs: marks the values that plans store in FP8, or leaves FP8 to the weights.
//!
//! FP8 is left to the weights, too, where a layer does not have a multiple of 16 channels, as the libraries' GEMMs take them.
//!
//! A value is stored in FP8 if nothing but linear layers multiplies it, all with the same step, and if its node can write it so.
//! Then the node before a GEMM writes half of the bytes, and no kernel of its own rounds.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::graph::Graph;
use crate::op::{Float8Scale, Linear, Op, RoundFloat8, Rounding};
use crate::rewrite::Rewritten;
use crate::value::ValueId;

/// Counts the values in FP8, or the layers that no longer round.
pub(crate) fn run(graph: &Graph, stored: bool) -> Result<Rewritten> {
    let mut new = graph.clone();
    let changes = if stored {
        let left = keep_weights(&mut new, |shape| !shape.iter().all(|n| n.is_multiple_of(16)));
        left + store(&mut new) + store_roundings(&mut new)
    } else {
        keep_weights(&mut new, |_| true)
    };
    Ok(Rewritten { graph: new, changes })
}

/// Leaves FP8 to the weights of layers whose weight has such a shape.
fn keep_weights(graph: &mut Graph, of_shape: impl Fn(&[usize]) -> bool) -> usize {
    let mut changes = 0;
    for node in &mut graph.nodes {
        let shape = node
            .inputs
            .get(1)
            .map_or(&[][..], |id| &graph.values[id.index()].shape);
        if let Op::Linear(Linear { rounding, .. }) = &mut node.op
            && matches!(rounding, Some(Rounding::Float8(_)))
            && of_shape(shape)
        {
            *rounding = None;
            changes += 1;
        }
    }
    changes
}

/// Marks the values that plans store in FP8, whatever their channels, and returns their number.
pub fn store(graph: &mut Graph) -> usize {
    let marked = stored(graph);
    for &(id, step) in &marked {
        graph.values[id.index()].rounding = Some(Rounding::Float8(Float8Scale::Fixed(step)));
    }
    marked.len()
}

/// Lets the roundings of training store bytes if only linear layers multiply them, whose other operand is in bytes too. Returns their number.
fn store_roundings(graph: &mut Graph) -> usize {
    let mut stored: HashSet<usize> = HashSet::new();
    // Rounding of each value that plans could store.
    let mut rounding_of: HashMap<ValueId, usize> = HashMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let x = node.inputs.first().map(|id| &graph.values[id.index()].shape);
        if let (Op::RoundFloat8(op), Some(x)) = (&node.op, x)
            && op.can_store(x)
        {
            stored.insert(index);
            let bytes = [node.outputs[0], node.outputs[RoundFloat8::TRANSPOSED]];
            rounding_of.extend(bytes.map(|id| (id, index)));
        }
    }
    // Each change may let others follow.
    let mut count = usize::MAX;
    while stored.len() < count {
        count = stored.len();
        for node in &graph.nodes {
            let is_stored = |id: &ValueId| rounding_of.get(id).is_some_and(|index| stored.contains(index));
            let operands = node.inputs.iter().take(2);
            let multiplies = matches!(node.op, Op::Linear(Linear { rounding: None, .. }))
                && operands.clone().all(is_stored)
                && !node.inputs.iter().skip(2).any(is_stored);
            if !multiplies {
                for index in node.inputs.iter().filter_map(|id| rounding_of.get(id)) {
                    stored.remove(index);
                }
            }
        }
        for id in graph
            .outputs
            .iter()
            .map(|(_, id)| id)
            .chain(graph.updates.iter().map(|(_, id)| id))
        {
            if let Some(index) = rounding_of.get(id) {
                stored.remove(index);
            }
        }
    }
    for &index in &stored {
        if let Op::RoundFloat8(op) = &mut graph.nodes[index].op {
            op.stored = true;
        }
    }
    stored.len()
}

/// The values that are stored in FP8, with their steps.
fn stored(graph: &Graph) -> Vec<(ValueId, f32)> {
    // The step of a value's readers, while they agree.
    let mut steps: HashMap<ValueId, Option<f32>> = HashMap::new();
    for node in &graph.nodes {
        for (position, &id) in node.inputs.iter().enumerate() {
            let step = match &node.op {
                Op::Linear(spec) if position == 0 => step(spec),
                _ => None,
            };
            let known = steps.entry(id).or_insert(step);
            *known = known.filter(|&known| step == Some(known));
        }
    }
    for (_, id) in &graph.outputs {
        steps.insert(*id, None);
    }
    graph
        .nodes
        .iter()
        .filter(|node| writes_float8(&node.op))
        .filter_map(|node| Some((node.output(), steps.get(&node.output()).copied().flatten()?)))
        .collect()
}

fn step(spec: &Linear) -> Option<f32> {
    spec.rounding.and_then(Rounding::fixed_float8)
}

/// Whether a GPU's kernel or GEMM for the op can write FP8.
fn writes_float8(op: &Op) -> bool {
    match op {
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::SwiGlu(_) | Op::SwiGluNorm(_) | Op::Attention(_) => true,
        // A GEMM of FP8 can; a residual would be in FP8 as well.
        Op::Linear(spec) => step(spec).is_some() && !spec.residual,
        _ => false,
    }
}
