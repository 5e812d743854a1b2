//! FP8 for what linear layers multiply and their weights: a step for each, found by the magnitudes on some images.

use std::collections::{BTreeMap, BTreeSet};

use super::range::{ActivationRange, step};
use super::{Layers, rounding, stored_names};
use hipvit::error::Result;
use hipvit::graph::{Graph, ValueId};
use hipvit::model::{Checkpoint, Model, Replacement};
use hipvit::ops::{Float8Scale, Op};

/// The weights that are quantised, in FP8 with one scale each and the step of what they multiply.
pub(super) fn round(
    checkpoint: &Checkpoint,
    model: &Model,
    layers: &Layers,
    images: &[Vec<u8>],
    range: ActivationRange,
) -> Result<BTreeMap<String, Replacement>> {
    let mut readers: BTreeMap<ValueId, BTreeSet<String>> = BTreeMap::new();
    for node in model
        .graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Linear(_)))
    {
        let weights = stored_names(&model.graph.value(node.inputs[1]).name);
        let weights = weights.filter(|name| layers.quantized.contains(name));
        readers.entry(node.inputs[0]).or_default().extend(weights);
    }
    readers.retain(|_, weights| !weights.is_empty());
    let values: Vec<Vec<ValueId>> = readers.keys().map(|&value| vec![value]).collect();
    let inputs = range.steps(model, &values, images)?;
    let mut replaced = BTreeMap::new();
    for (weights, input) in readers.values().zip(inputs) {
        let tensors = weights.iter().map(|name| rounding::finite(checkpoint, name));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let largest = |tensor: &Vec<f32>| tensor.iter().fold(0f32, |most, value| most.max(value.abs()));
        let scale = step(tensors.iter().map(largest).fold(0f32, f32::max));
        for (name, tensor) in weights.iter().zip(&tensors) {
            let values = rounding::to_float8(tensor, scale);
            let replacement = Replacement::Float8 {
                values,
                scales: vec![scale],
                input: Some(Float8Scale::Fixed(input)),
                output: None,
            };
            replaced.insert(name.clone(), replacement);
        }
    }
    Ok(replaced)
}

/// An attention that GPUs compute in FP8, if the layers that give its queries, keys and values are in FP8.
pub(super) struct Attended {
    /// Its node's name.
    pub(super) name: String,
    /// What it reads, and the weights of the layers that compute it.
    operands: Vec<(ValueId, Vec<String>)>,
}

impl Attended {
    /// Those of the blocks whose operands' weights all are in FP8 in `replaced`, with activations.
    pub(super) fn of(graph: &Graph, replaced: &BTreeMap<String, Replacement>) -> Vec<Self> {
        let in_float8 = |name: &String| {
            matches!(
                replaced.get(name),
                Some(Replacement::Float8 { input: Some(_), .. })
            )
        };
        let operand = |&value: &ValueId| {
            let node = graph.nodes().iter().find(|node| node.output() == value)?;
            let Op::Linear(_) = node.op else { return None };
            let weights: Vec<String> = stored_names(&graph.value(node.inputs[1]).name).collect();
            weights.iter().all(in_float8).then_some((value, weights))
        };
        let attended = graph.nodes().iter().filter_map(|node| match &node.op {
            Op::Attention(spec) if spec.is_plain_of_whole_heads() && node.name.starts_with("blocks.") => {
                let operands = node.inputs[..spec.operands.count()].iter();
                Some(Self {
                    name: node.name.clone(),
                    operands: operands.map(operand).collect::<Option<_>>()?,
                })
            }
            _ => None,
        });
        attended.collect()
    }

    /// The weights of all operands.
    pub(super) fn weights(&self) -> impl Iterator<Item = &String> {
        self.operands.iter().flat_map(|(_, weights)| weights)
    }

    /// The elements of all operands, of one image.
    pub(super) fn elements(&self, graph: &Graph) -> usize {
        let of = |(value, _): &(ValueId, Vec<String>)| graph.value(*value).shape.iter().product::<usize>();
        self.operands.iter().map(of).sum()
    }
}

/// Gives layers in FP8 whose results are the queries, keys and values of `attentions` the step of these.
pub(super) fn attend(
    model: &Model,
    attentions: &[Attended],
    images: &[Vec<u8>],
    range: ActivationRange,
    replaced: &mut BTreeMap<String, Replacement>,
) -> Result<()> {
    let operands = |of: &Attended| of.operands.iter().map(|&(value, _)| value).collect();
    let values: Vec<Vec<ValueId>> = attentions.iter().map(operands).collect();
    let steps = range.steps(model, &values, images)?;
    for (attention, step) in attentions.iter().zip(steps) {
        for name in attention.weights() {
            if let Some(Replacement::Float8 { output, .. }) = replaced.get_mut(name) {
                *output = Some(step);
            }
        }
    }
    Ok(())
}
