//! Rounding of the linear layers of the blocks: to int8 for quantisation-aware training, or to FP8.
//!
//! # int8
//!
//! A layer's input and its weight become the numbers that [`int8`] rounds them to, which are those of `hipvit
//! quantize` without calibration images. Gradients pass the rounding unchanged.
//!
//! # FP8
//!
//! Inputs and weights are rounded to E4M3, the gradients of results to E5M2, each tensor with one power of two as its scale. Each layer has a
//! switch, an element of the input [`FLOAT8_LAYERS`]. The share of the numbers that become 0 is a state of the
//! graph. No number overflows.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, Rewriter, Role, ValueId, int8, rewrite};
use hipvit::model::{Replacement, TensorValues};
use hipvit::ops::{
    FakeQuantize, Float8, Gradients, GraphBuilder, Int8Grid, Levels, Linear, MatMul, Op, OpError,
    RoundFloat8, only_gradient,
};
use hipvit::tensor::{DType, Tensor};

use crate::trainer::TrainOptions;

/// Name of the input with the switches of FP8: f32 `[layers]`, 0 for a layer that is not rounded.
pub(crate) const FLOAT8_LAYERS: &str = "float8_layers";

/// End of the names of the states with the rate of underflow of a rounding to FP8.
const RATE: &str = ".float8_underflow";

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
    Float8 {
        /// Share of the elements of an operand that may underflow. A layer with a larger share returns to the dtype of the activations.
        max_rate: f32,
    },
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
    /// Names of the layers that are rounded to FP8, in the order of their switches.
    pub(crate) float8: Vec<String>,
}

/// Returns `graph` with the rounding of its layers.
///
/// # Errors
///
/// [`Error::Argument`] if no linear layer is in a block.
pub(crate) fn insert(graph: &Graph, quantization: Quantization) -> Result<(Graph, RoundedLayers)> {
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
    if quantization == Quantization::Int8 {
        let tensors = nodes
            .iter()
            .flat_map(|node| graph.value(node.inputs[1]).tensors());
        layers.int8 = tensors.map(str::to_owned).collect();
        return Ok((with_int8(graph)?, layers));
    }
    layers.float8 = nodes.iter().map(|node| node.name.clone()).collect();
    Ok((with_float8(graph, nodes.len())?, layers))
}

/// Checks that the rounding fits the other options.
///
/// # Errors
///
/// [`Error::Argument`] for updates of low rank, and for FP8 with activations in f16.
pub(crate) fn check(quantization: Quantization, options: &TrainOptions) -> Result<()> {
    if quantization == Quantization::None {
        return Ok(());
    }
    if options.lora.is_some() {
        let reason = "rounds weights that LoRA does not train. Leave out one of the two";
        return Err(Error::argument("quantization", reason));
    }
    let Quantization::Float8 { max_rate } = quantization else {
        return Ok(());
    };
    if options.dtype == DType::F16 {
        let reason = "to FP8 needs activations in bf16 or f32: f16 does not represent all numbers in FP8";
        return Err(Error::argument("quantization", reason));
    }
    if !(0.0..=1.0).contains(&max_rate) {
        return Err(Error::argument("max rate", "is not a number from 0 to 1"));
    }
    Ok(())
}

/// Returns true for a layer that `hipvit quantize` rounds: it is in a block, and its weight is a tensor or rows of several.
fn is_rounded(graph: &Graph, node: &Node) -> bool {
    let Op::Linear(Linear {
        activation: None,
        residual: false,
        rounding: None,
        ..
    }) = node.op
    else {
        return false;
    };
    let tensors = graph.value(node.inputs[1]).tensors();
    let is_whole = !tensors.is_empty() && tensors.iter().all(|name| name.ends_with(".weight"));
    node.block().is_some() && is_whole
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

fn with_float8(graph: &Graph, layers: usize) -> Result<Graph> {
    let mut graph = graph.clone();
    let switches = graph.add_fixed_input(FLOAT8_LAYERS, [layers], DType::F32)?;
    let mut column = 0;
    let rewritten = rewrite(&graph, |rewriter, node| {
        if !is_rounded(&graph, node) {
            return Ok(None);
        }
        let op = RoundFloat8 {
            format: Float8::E4M3,
            column,
        };
        column += 1;
        let switches = rewriter.map(switches);
        let mut operands = rewriter.map_all(&node.inputs);
        for (operand, end) in operands.iter_mut().zip(["input", "weight"]) {
            let name = format!("{}.{end}.float8", node.name);
            *operand = rewriter.emit(Role::Other, &name, op, [*operand, switches])?;
        }
        rewriter
            .emit(node.role, &node.name, node.op.clone(), operands)
            .map(Some)
    })?;
    Ok(rewritten.graph)
}

/// Derivatives of the ops of a graph. A layer in FP8 rounds the gradient of its result to E5M2.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derivatives {
    /// The switches and the column of each rounded weight.
    weights: HashMap<ValueId, (ValueId, usize)>,
}

impl Derivatives {
    pub(crate) fn of(graph: &Graph) -> Self {
        let rounded = graph.nodes().iter().filter_map(|node| match node.op {
            Op::RoundFloat8(RoundFloat8 { column, .. }) => Some((node.output(), (node.inputs[1], column))),
            _ => None,
        });
        Self {
            weights: rounded.collect(),
        }
    }

    /// Appends the vector-Jacobian product of a node.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op has no derivative.
    pub(crate) fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> std::result::Result<Gradients, OpError> {
        let switch = node.inputs.get(1).and_then(|weight| self.weights.get(weight));
        let (Op::Linear(spec), Some(&(switches, column))) = (&node.op, switch) else {
            return node.op.vjp(builder, node.values(), gradients);
        };
        let gradient = only_gradient(gradients)?;
        let op = RoundFloat8 {
            format: Float8::E5M2,
            column,
        };
        let rounded = builder.push(op, [gradient, switches])?;
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let d_weight = builder.push(MatMul::TRANSPOSED, [rounded, x])?;
        let d_bias = if spec.bias {
            Some(Some(builder.sum_to_size(gradient, node.inputs[2])?))
        } else {
            None
        };
        let d_x = builder.push(MatMul::default(), [rounded, weight])?;
        Ok([Some(d_x), Some(d_weight)].into_iter().chain(d_bias).collect())
    }
}

/// An operand of a layer in FP8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Input,
    Weight,
    Gradient,
}

impl Operand {
    /// Returns the name of the operand, as logs have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Weight => "weight",
            Self::Gradient => "gradient",
        }
    }

    /// Returns the name of the state with the rate of the operand of a layer.
    pub(crate) fn state(self, layer: &str) -> String {
        format!("{layer}.{}{RATE}", self.name())
    }
}

/// Returns true for a state with the rates of a rounding, which has no information between two steps.
pub(crate) fn is_rates(state: &str) -> bool {
    state.ends_with(RATE)
}

/// Adds the states with the rates of all roundings to FP8 of a step. `layers` has the names of the layers. Returns the index of each
/// rounding's layer, and the operand.
///
/// # Errors
///
/// [`Error::Graph`] if the graph is invalid.
pub(crate) fn add_rates(graph: &mut Graph, layers: &[String]) -> Result<Vec<(usize, Operand)>> {
    let mut added = Vec::new();
    let nodes = graph.nodes().to_vec();
    for node in &nodes {
        let Op::RoundFloat8(RoundFloat8 { format, column }) = node.op else {
            continue;
        };
        let operand = match format {
            Float8::E5M2 => Operand::Gradient,
            _ if node.name.ends_with(".weight.float8") => Operand::Weight,
            _ => Operand::Input,
        };
        let name = operand.state(&layers[column]);
        let zeros = Tensor::from_f32([1], vec![0.0]);
        let zeros = zeros.ok_or_else(|| Error::internal("training", "a rate has no elements"))?;
        let state = graph.state(name, zeros);
        graph.update(state, node.outputs[1])?;
        added.push((column, operand));
    }
    Ok(added)
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
