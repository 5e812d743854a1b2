//! Rounding of the linear layers of the blocks: to int8 for quantisation-aware training, or to FP8.
//!
//! # int8
//!
//! A layer's input and its weight become the numbers that [`int8`] rounds them to, which are those of `hipvit
//! quantize` without calibration images. Gradients pass the rounding unchanged.
//!
//! # FP8
//!
//! Inputs and weights are rounded to E4M3, the gradients of results to E5M2, each tensor with one power of two as its scale. States of the graph
//! have the largest magnitudes of the last steps, from which the scales come, and the shares of the numbers that underflow or overflow. A
//! layer that loses too much is left out of the next graph. See [`float8`](crate::float8).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, Rewriter, Role, ValueId, int8, rewrite};
use hipvit::model::{Replacement, TensorValues};
use hipvit::ops::{FakeQuantize, Int8Grid, Levels};
use hipvit::tensor::DType;

use crate::float8::{self, Float8Options};
use crate::rounded_layers::is_rounded;

/// Rounding of the linear layers of the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Quantization {
    /// Layers are computed in the dtype of the activations.
    #[default]
    None,
    /// Inputs and weights are rounded as in int8. Gradients are not.
    Int8,
    /// Inputs, weights and gradients are rounded to FP8.
    Float8(Float8Options),
}

/// Precision of a step, beside the dtype of activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrecisionOptions {
    /// First factor of the loss in f16. It halves after a step whose gradients overflow, and doubles after 2,000 steps without one.
    pub loss_scale: f32,
    /// Rounding of linear layers.
    pub quantization: Quantization,
}

impl Default for PrecisionOptions {
    fn default() -> Self {
        Self {
            loss_scale: 65536.0,
            quantization: Quantization::None,
        }
    }
}

/// The layers of a graph that are rounded.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundedLayers {
    /// Tensors of the checkpoint that are rounded to int8.
    pub(crate) int8: BTreeSet<String>,
    /// Names of the layers that are computed in FP8.
    pub(crate) float8: Vec<String>,
}

/// Returns `graph` with the rounding of its layers. `returned` are those that are no longer in FP8.
///
/// # Errors
///
/// [`Error::Argument`] if no linear layer is in a block.
pub(crate) fn insert(
    graph: &Graph,
    quantization: Quantization,
    returned: &BTreeSet<String>,
) -> Result<(Graph, RoundedLayers)> {
    let mut layers = RoundedLayers::default();
    if quantization == Quantization::None {
        return Ok((graph.clone(), layers));
    }
    let nodes: Vec<&Node> = graph
        .nodes()
        .iter()
        .filter(|node| is_rounded(graph, node))
        .collect();
    if nodes.is_empty() {
        let reason = format!("{} has no linear layer in a block", graph.name());
        return Err(Error::argument("quantization", reason));
    }
    if let Quantization::Float8(options) = quantization {
        layers.float8 = float8::layers(graph, options, returned);
        return Ok((float8::insert(graph, options, &layers.float8)?, layers));
    }
    let tensors = nodes
        .iter()
        .flat_map(|node| graph.value(node.inputs[1]).tensors());
    layers.int8 = tensors.map(str::to_owned).collect();
    Ok((with_int8(graph)?, layers))
}

/// Checks that the rounding fits the other options.
///
/// # Errors
///
/// [`Error::Argument`] for updates of low rank, and for FP8 with activations in f16.
pub(crate) fn check(quantization: Quantization, has_lora: bool, dtype: DType) -> Result<()> {
    if quantization == Quantization::None {
        return Ok(());
    }
    if has_lora {
        let reason = "rounds weights that LoRA does not train. Leave out one of the two";
        return Err(Error::argument("quantization", reason));
    }
    let Quantization::Float8(Float8Options { max_rate, .. }) = quantization else {
        return Ok(());
    };
    if dtype == DType::F16 {
        let reason = "to FP8 needs activations in bf16 or f32: f16 does not represent all numbers in FP8";
        return Err(Error::argument("quantization", reason));
    }
    if !(0.0..=1.0).contains(&max_rate) {
        return Err(Error::argument("max rate", "is not a number from 0 to 1"));
    }
    Ok(())
}

fn with_int8(graph: &Graph) -> Result<Graph> {
    // Layers that read one value share its rounding.
    let mut inputs: HashMap<ValueId, ValueId> = HashMap::new();
    let rewritten = rewrite(graph, |rewriter, node| {
        if !is_rounded(graph, node) {
            return Ok(None);
        }
        let mut operands = rewriter.map_all(&node.inputs);
        let round = |rewriter: &mut Rewriter<'_>, end: &str, grid, x| {
            let name = format!("{}.{end}.int8", node.name);
            rewriter.emit(Role::Other, &name, FakeQuantize { grid }, [x])
        };
        operands[0] = match inputs.get(&node.inputs[0]) {
            Some(&rounded) => rounded,
            None => {
                let grid = Int8Grid::Activations(Levels::Range);
                let rounded = round(rewriter, "input", grid, operands[0])?;
                inputs.insert(node.inputs[0], rounded);
                rounded
            }
        };
        operands[1] = round(rewriter, "weight", Int8Grid::Weights, operands[1])?;
        rewriter
            .emit(node.role, &node.name, node.op.clone(), operands)
            .map(Some)
    })?;
    Ok(rewritten.graph)
}

/// Returns the tensors of a model in int8. `layers` are rounded to int8, all other values stay. `columns` returns the columns of a tensor.
pub(crate) fn in_int8(
    values: TensorValues,
    layers: &BTreeSet<String>,
    columns: impl Fn(&str) -> usize,
) -> BTreeMap<String, Replacement> {
    let replaced = values.into_iter().map(|(name, values)| {
        let replacement = if layers.contains(&name) {
            let (values, scales) = int8::round_weight(&values, columns(&name));
            Replacement::Int8 { values, scales }
        } else {
            Replacement::F32(values)
        };
        (name, replacement)
    });
    replaced.collect()
}
