//! FP8 for what linear layers multiply and their weights: a step for each, found by the largest magnitudes on some images.

use std::collections::{BTreeMap, BTreeSet};

use super::{Layers, calibrate, rounding, stored_names};
use crate::error::Result;
use crate::float8::Float8;
use crate::graph::ValueId;
use crate::model::{Checkpoint, Model, Replacement};
use crate::ops::{Float8Scale, Op};

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
                input: Some(Float8Scale::Fixed(input)),
                output: None,
            };
            replaced.insert(name.clone(), replacement);
        }
    }
    Ok(replaced)
}

/// Gives layers in FP8 whose results are the queries, keys and values of attention that GPUs compute in FP8 the step of these; returns
/// how many attentions there are of which all are.
pub(super) fn attend(
    model: &Model,
    images: &[Vec<u8>],
    replaced: &mut BTreeMap<String, Replacement>,
) -> Result<usize> {
    let graph = &model.graph;
    let layer_of = |&value: &ValueId| {
        let node = graph.nodes().iter().find(|node| node.output == value)?;
        let Op::Linear(_) = node.op else { return None };
        let weights: Vec<String> = stored_names(&graph.value(node.inputs[1]).name).collect();
        let in_float8 = |name| {
            matches!(
                replaced.get(name),
                Some(Replacement::Float8 { input: Some(_), .. })
            )
        };
        weights.iter().all(in_float8).then_some((value, weights))
    };
    let attentions: Vec<Vec<(ValueId, Vec<String>)>> = graph
        .nodes()
        .iter()
        .filter_map(|node| match &node.op {
            Op::Attention(spec) if spec.is_plain_of_whole_heads() && node.name.starts_with("blocks.") => node
                .inputs[..spec.operands.count()]
                .iter()
                .map(layer_of)
                .collect(),
            _ => None,
        })
        .collect();
    let values: Vec<ValueId> = attentions.iter().flatten().map(|&(value, _)| value).collect();
    let ranges = calibrate(model, &values, images)?;
    let mut ranges = ranges.iter();
    for layers in &attentions {
        let of_attention = ranges.by_ref().take(layers.len());
        let step = step(of_attention.flatten().copied());
        for name in layers.iter().flat_map(|(_, weights)| weights) {
            if let Some(Replacement::Float8 { output, .. }) = replaced.get_mut(name) {
                *output = Some(step);
            }
        }
    }
    Ok(attentions.len())
}

/// The step by which the largest of these magnitudes becomes E4M3's; 1 for zeros.
fn step(magnitudes: impl Iterator<Item = f32>) -> f32 {
    let step = magnitudes.fold(0f32, f32::max) / Float8::E4M3.largest();
    if step.is_normal() { step } else { 1.0 }
}
