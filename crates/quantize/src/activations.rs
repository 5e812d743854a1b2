//! FP8 weights and activations of linear layers. The activation scales come from the magnitudes on
//! calibration images.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::Layers;
use super::range::{ActivationRange, step};
use super::rounding;
use hipvit::error::Result;
use hipvit::graph::ValueId;
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
        let weights = model.graph.value(node.inputs[1]).tensors().into_iter();
        let weights = weights.filter(|&name| layers.quantized.contains(name));
        let weights = weights.map(str::to_owned);
        readers.entry(node.inputs[0]).or_default().extend(weights);
    }
    readers.retain(|_, weights| !weights.is_empty());
    let values: Vec<ValueId> = readers.keys().copied().collect();
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
            };
            replaced.insert(name.clone(), replacement);
        }
    }
    Ok(replaced)
}
