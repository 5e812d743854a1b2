//! FP8 weights and activations of linear layers. The activation scales come from the magnitudes on
//! calibration images.

use std::collections::{BTreeMap, BTreeSet};

use super::range::{ActivationRange, step};
use super::{Layers, rounding, stored_names};
use hipvit::error::Result;
use hipvit::graph::{Graph, ValueId};
use hipvit::model::{Checkpoint, Model, Replacement};
use hipvit::ops::{Float8Scale, Op};

/// Rounds the quantised weights to FP8 with one scale each, and determines the scale of each layer's input.
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

/// An attention that GPUs can compute in FP8 if the layers that produce its queries, keys and values are in
/// FP8.
pub(super) struct Attended {
    /// Name of the attention's node.
    pub(super) name: String,
    /// Queries, keys and values, each with the weights of the layer that computes it.
    operands: Vec<(ValueId, Vec<String>)>,
}

impl Attended {
    /// Returns the blocks' attentions for which `replaced` has all operand weights in FP8 with FP8
    /// activations.
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

    /// Returns the weights that compute the operands.
    pub(super) fn weights(&self) -> impl Iterator<Item = &String> {
        self.operands.iter().flat_map(|(_, weights)| weights)
    }

    /// Returns the number of elements of all operands for one image.
    pub(super) fn elements(&self, graph: &Graph) -> usize {
        let of = |(value, _): &(ValueId, Vec<String>)| graph.value(*value).shape.iter().product::<usize>();
        self.operands.iter().map(of).sum()
    }
}

/// Adds the FP8 output scale of `attentions`' operands to the layers that compute them.
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
