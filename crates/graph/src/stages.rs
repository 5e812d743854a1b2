//! Pipeline parallelism: a graph divided into stages that run one after the other, each on its own device.
//!
//! A cut is possible where only the residual stream flows on, image by image: between blocks, and between the attention and the
//! feed-forward network of a block. The cuts minimise the cost of the most expensive stage.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, OutputKind, Role};
use crate::op::{Affine, MulScalar, Op};
use crate::plan::step_flops;
use crate::value::{FirstInput, Value, ValueId, ValueKind};

/// A stage of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stage {
    /// Graph of the stage. Its input is the [boundary](OutputKind::Boundary) of the previous stage, or the image for the first stage.
    pub graph: Graph,
    /// Indices of the model's outputs that this stage computes, in the order of its graph's outputs. All stages but the last have a
    /// [boundary](OutputKind::Boundary) as an additional last output.
    pub outputs: Vec<usize>,
    /// Floating-point operations per image.
    pub flops: u64,
}

/// Divides `graph`, which must be optimised, into `count` stages.
///
/// # Errors
///
/// [`Error::Argument`], naming the model, if there are too few possible cuts.
pub fn stages(graph: &Graph, count: usize) -> Result<Vec<Stage>> {
    let wrong = |reason: String| Err(Error::argument("pipeline", reason));
    if !graph.updates.is_empty() {
        return wrong(format!("{} is trained, which stages cannot do", graph.name));
    }
    if !graph.more_inputs.is_empty() {
        return wrong(format!("{} has several inputs, but a stage has one", graph.name));
    }
    if count == 0 {
        return wrong("has no stage; at least 1 is needed".into());
    }
    let cuts = cuts(graph);
    if count > cuts.len() + 1 {
        let most = cuts.len() + 1;
        return wrong(format!(
            "{} can be cut into {most} stages at most, not {count}",
            graph.name
        ));
    }
    let costs = costs(graph)?;
    let ends: Vec<usize> = cuts.iter().map(|cut| cut.0).chain([graph.nodes.len()]).collect();
    let chosen = balance(&costs, &ends, count);
    let mut from = (0, graph.input);
    let mut stages = Vec::with_capacity(count);
    for end in chosen {
        let boundary = cuts.iter().find(|cut| cut.0 == end).map(|cut| cut.1);
        stages.push(stage(graph, from.0..end, from.1, boundary, &costs)?);
        from = (end, boundary.unwrap_or(graph.input));
    }
    Ok(stages)
}

/// Returns the possible cuts: the first node after the cut, and the value that flows over it.
fn cuts(graph: &Graph) -> Vec<(usize, ValueId)> {
    let mut last_use = vec![0; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for id in &node.inputs {
            last_use[id.index()] = index;
        }
    }
    let mut cuts = Vec::new();
    let mut live = vec![graph.input];
    for (index, node) in graph.nodes.iter().enumerate() {
        if let &[value] = live.as_slice()
            && value == node.inputs[0]
            && value != graph.input
            // Otherwise the value has several windows for each image.
            && graph.value(value).shape[0] == 1
        {
            // A branch starts with a norm. With post-norm it starts with a Linear, which leaves the value to the sum.
            let begins_branch = match node.op {
                Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Affine(Affine) => true,
                Op::Linear(_) => last_use[value.index()] > index,
                _ => false,
            };
            if begins_branch {
                cuts.push((index, value));
            }
        }
        live.extend(&node.outputs);
        live.retain(|id| last_use[id.index()] > index);
    }
    cuts
}

/// Returns each node's floating-point operations per image.
fn costs(graph: &Graph) -> Result<Vec<u64>> {
    let shapes = graph.shapes(1)?;
    Ok(graph.nodes.iter().map(|node| step_flops(node, &shapes)).collect())
}

/// Chooses `count` of the `ends`, including the last one, to minimise the largest sum of costs between them. Prefers earlier ends among
/// equals.
fn balance(costs: &[u64], ends: &[usize], count: usize) -> Vec<usize> {
    let sum = |from: usize, to: usize| costs[from..to].iter().sum::<u64>();
    // Best solution for each end so far: its largest sum, and the chosen ends.
    let mut best: Vec<Option<(u64, Vec<usize>)>> =
        ends.iter().map(|&end| Some((sum(0, end), vec![end]))).collect();
    for _ in 1..count {
        best = (0..ends.len())
            .map(|last| {
                let with = |before: usize| {
                    let (largest, chosen) = best[before].as_ref()?;
                    let largest = (*largest).max(sum(ends[before], ends[last]));
                    let mut chosen = chosen.clone();
                    chosen.push(ends[last]);
                    Some((largest, chosen))
                };
                (0..last).filter_map(with).min_by_key(|(largest, _)| *largest)
            })
            .collect();
    }
    best.pop().flatten().map(|(_, chosen)| chosen).unwrap_or_default()
}

/// Returns the nodes in `range` as a separate graph.
fn stage(
    graph: &Graph,
    range: std::ops::Range<usize>,
    input: ValueId,
    boundary: Option<ValueId>,
    costs: &[u64],
) -> Result<Stage> {
    let nodes: Vec<Node> = graph.nodes[range.clone()].to_vec();
    let computed = |id: ValueId| nodes.iter().any(|node| node.outputs.contains(&id));
    let mut part = Graph {
        nodes: nodes.clone(),
        input,
        ..graph.clone()
    };
    if input != graph.input {
        part.first_input = FirstInput::Activations;
    }
    if input != graph.input && !graph.outputs.iter().any(|&(_, id)| id == input) {
        receive(&mut part);
    }
    let mut outputs = Vec::new();
    part.outputs.clear();
    for (index, &(kind, id)) in graph.outputs.iter().enumerate() {
        // The boundary of the previous stage may be an output too, which the previous stage has.
        if computed(id) {
            part.outputs.push((kind, id));
            outputs.push(index);
        }
    }
    part.outputs.extend(boundary.map(|id| (OutputKind::Boundary, id)));
    let part = part.without_dead_code();
    part.verify()?;
    Ok(Stage {
        graph: part,
        outputs,
        flops: costs[range].iter().sum(),
    })
}

/// Starts the stage with a copy of its input, as a product with 1. The plan of the whole model adds to this value in place, since it has no
/// later reader. With the copy, so does the plan of the stage, and sums have the same bits. An output of the model is not added to in
/// place.
fn receive(part: &mut Graph) {
    let input = part.input;
    let name = format!("{}.receive", part.value(input).name);
    let value = Value {
        name: name.clone(),
        kind: ValueKind::Result,
        ..part.value(input).clone()
    };
    let output = part.push_value(value);
    for id in part.nodes.iter_mut().flat_map(|node| &mut node.inputs) {
        if *id == input {
            *id = output;
        }
    }
    let role = part.nodes.first().map_or(Role::Other, |node| node.role);
    let node = Node {
        name,
        op: Op::MulScalar(MulScalar(1.0)),
        inputs: vec![input],
        outputs: vec![output],
        role,
    };
    part.nodes.insert(0, node);
}
