//! FP8 for what linear layers multiply and their weights: a step for each, found by the largest magnitudes on some images.

use std::collections::{BTreeMap, BTreeSet};

use super::{Layers, calibrate, rounding, stored_names};
use crate::error::Result;
use crate::float8::Float8;
use crate::graph::ValueId;
use crate::model::{Checkpoint, Model, Replacement};
use crate::ops::Op;

/// The weights that are quantised, in FP8 with one scale each and the step of what they multiply.
pub(super) fn round(
    checkpoint: &Checkpoint,
    model: &Model,
    layers: &Layers,
    images: &[Vec<u8>],
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
    let values: Vec<ValueId> = readers.keys().copied().collect();
    let ranges = calibrate(model, &values, images)?;
    let mut replaced = BTreeMap::new();
    for (weights, range) in readers.values().zip(&ranges) {
        let input = step(range.iter().copied());
        let tensors = weights.iter().map(|name| rounding::finite(checkpoint, name));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let largest = |tensor: &Vec<f32>| tensor.iter().fold(0f32, |most, value| most.max(value.abs()));
        let scale = step(tensors.iter().map(largest));
        for (name, tensor) in weights.iter().zip(&tensors) {
            let values = rounding::to_float8(tensor, scale);
            let replacement = Replacement::Float8 {
                values,
                scales: vec![scale],
                input: Some(input),
            };
            replaced.insert(name.clone(), replacement);
        }
    }
    Ok(replaced)
}

/// The step by which the largest of these magnitudes becomes E4M3's; 1 for zeros.
fn step(magnitudes: impl Iterator<Item = f32>) -> f32 {
    let step = magnitudes.fold(0f32, f32::max) / Float8::E4M3.largest();
    if step.is_normal() { step } else { 1.0 }
}
