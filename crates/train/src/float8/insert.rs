//! Inserts the roundings to FP8 into the graph of a model, and into its backward pass.
//!
//! A layer multiplies three pairs of operands: its input and weight, the gradient of its result and the weight, and this gradient and the
//! input. Each is a linear layer of two roundings, one of them transposed where the product needs it. So GEMMs of FP8, which multiply two
//! matrices with contiguous rows, compute all of them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, Role, ValueId, rewrite};
use hipvit::ops::{
    Float8, Float8Source, Gradients, GraphBuilder, Linear, Op, OpError, RoundFloat8, STATISTICS,
    only_gradient,
};
use hipvit::tensor::Tensor;

use super::{Float8Options, Operand, Rounding};
use crate::rounded_layers::is_rounded;

/// Rows of a transposed matrix of tokens have a multiple of this number of elements, which FP8 GEMMs require.
const ALIGNMENT: usize = 16;

/// Elements of a weight, per channel of input and result, above which FP8 saves more time than the rounding takes.
///
/// A token takes 6 floating-point operations per element of the weight, at 620 TFLOP/s in bf16 and 780 TFLOP/s in FP8. Rounding moves 4 bytes
/// per channel, at 2.5 TB/s.
const GAIN: usize = 800;

/// Returns the names of the layers of a block that are computed in FP8, in the order of the graph.
pub(crate) fn layers(graph: &Graph, options: Float8Options, returned: &BTreeSet<String>) -> Vec<String> {
    let nodes = || graph.nodes().iter().filter(|node| is_rounded(graph, node));
    let pays = |node: &&Node| options.all_layers || pays(graph, node);
    let mut layers: Vec<&Node> = nodes().filter(pays).collect();
    if layers.is_empty() {
        layers = nodes().collect();
    }
    let names = layers.into_iter().map(|node| node.name.clone());
    names.filter(|name| !returned.contains(name)).collect()
}

/// Returns true if the GEMMs of a layer save more time in FP8 than the rounding of its input and of its gradient takes. An activation before or
/// after the layer rounds at no cost.
fn pays(graph: &Graph, node: &Node) -> bool {
    let [n, k] = *graph.value(node.inputs[1]).shape else {
        return false;
    };
    let readers = |id: ValueId| graph.nodes().iter().filter(move |node| node.inputs.contains(&id));
    let is_activation = |node: &Node| matches!(node.op, Op::Activation(_));
    let producer = graph
        .nodes()
        .iter()
        .find(|other| other.outputs.contains(&node.inputs[0]));
    let of_input = if producer.is_some_and(is_activation) {
        0
    } else {
        k / readers(node.inputs[0]).count().max(1)
    };
    let is_active = readers(node.output()).next().is_some() && readers(node.output()).all(is_activation);
    let of_gradient = if is_active { 0 } else { n };
    [n, k].iter().all(|channels| channels.is_multiple_of(ALIGNMENT))
        && n * k > GAIN * (of_input + of_gradient)
}

/// Returns `graph` with the roundings of the inputs and weights of `layers`, and the states of all roundings.
///
/// # Errors
///
/// [`Error::Graph`] if the graph is invalid.
pub(crate) fn insert(graph: &Graph, options: Float8Options, layers: &[String]) -> Result<Graph> {
    let layers: BTreeSet<&str> = layers.iter().map(String::as_str).collect();
    let is_inserted = |node: &Node| layers.contains(node.name.as_str()) && is_rounded(graph, node);
    // Layers that read one value share its rounding.
    let mut states: HashMap<(ValueId, Operand), ValueId> = HashMap::new();
    let mut new = graph.clone();
    for node in graph.nodes().iter().filter(|node| is_inserted(node)) {
        for (index, operand) in [Operand::Input, Operand::Weight].into_iter().enumerate() {
            if let Entry::Vacant(state) = states.entry((node.inputs[index], operand)) {
                state.insert(add_state(&mut new, operand, &node.name)?);
            }
        }
    }
    let mut rounded: HashMap<(ValueId, Operand), ValueId> = HashMap::new();
    let rewritten = rewrite(&new, |rewriter, node| {
        if !is_inserted(node) {
            return Ok(None);
        }
        let mut operands = rewriter.map_all(&node.inputs);
        for (index, operand) in [Operand::Input, Operand::Weight].into_iter().enumerate() {
            let key = (node.inputs[index], operand);
            let (known, Some(&state)) = (rounded.get(&key), states.get(&key)) else {
                continue;
            };
            operands[index] = match known {
                Some(&known) => known,
                None => {
                    let op = RoundFloat8 {
                        align: if operand == Operand::Input { ALIGNMENT } else { 1 },
                        ..rounding(Float8::E4M3, options.delayed)
                    };
                    // The state has the name of the rounding.
                    let name = format!("{}.rounded", operand.state(&node.name));
                    let state = rewriter.map(state);
                    rewriter.emit(Role::Other, &name, op, [operands[index], state])?
                }
            };
            rounded.insert(key, operands[index]);
        }
        rewriter
            .emit(node.role, &node.name, node.op.clone(), operands)
            .map(Some)
    })?;
    let mut graph = rewritten.graph;
    for name in layers {
        add_state(&mut graph, Operand::Gradient, name)?;
    }
    Ok(graph)
}

fn rounding(format: Float8, delayed: bool) -> RoundFloat8 {
    RoundFloat8 {
        format,
        source: Float8Source::Value,
        delayed,
        sums: false,
        align: ALIGNMENT,
        stored: false,
    }
}

fn add_state(graph: &mut Graph, operand: Operand, layer: &str) -> Result<ValueId> {
    let zeros = Tensor::from_f32([STATISTICS], vec![0.0; STATISTICS]);
    let zeros = zeros.ok_or_else(|| Error::internal("training", "statistics have no elements"))?;
    Ok(graph.state(operand.state(layer), zeros))
}

/// Derivatives of the ops of a graph. A layer in FP8 rounds the gradient of its result to E5M2.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derivatives {
    /// What the backward pass of each layer reads, by the layer's result.
    layers: HashMap<ValueId, Layer>,
}

/// What the backward pass of a layer in FP8 reads.
#[derive(Clone, Copy, Debug)]
struct Layer {
    transposed_input: ValueId,
    transposed_weight: ValueId,
    /// Statistics of the gradient.
    state: ValueId,
    delayed: bool,
}

impl Derivatives {
    pub(crate) fn of(graph: &Graph) -> Self {
        let transposed = graph.nodes().iter().filter_map(|node| match node.op {
            Op::RoundFloat8(op) => Some((node.output(), (node.outputs[RoundFloat8::TRANSPOSED], op.delayed))),
            _ => None,
        });
        let transposed: HashMap<ValueId, (ValueId, bool)> = transposed.collect();
        let states: HashMap<&str, ValueId> = graph
            .states()
            .map(|id| (graph.value(id).name.as_str(), id))
            .collect();
        let layers = graph.nodes().iter().filter_map(|node| {
            if !matches!(node.op, Op::Linear(_)) {
                return None;
            }
            let &(transposed_input, delayed) = transposed.get(node.inputs.first()?)?;
            let &(transposed_weight, _) = transposed.get(node.inputs.get(1)?)?;
            let state = *states.get(Operand::Gradient.state(&node.name).as_str())?;
            let layer = Layer {
                transposed_input,
                transposed_weight,
                state,
                delayed,
            };
            Some((node.output(), layer))
        });
        Self {
            layers: layers.collect(),
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
        let (Op::Linear(spec), Some(&layer)) = (&node.op, self.layers.get(&node.output())) else {
            return node.op.vjp(builder, node.values(), gradients);
        };
        let gradient = only_gradient(gradients)?;
        let op = RoundFloat8 {
            sums: spec.bias,
            ..rounding(Float8::E5M2, layer.delayed)
        };
        let rounded = builder.push_node(op, [gradient, layer.state])?;
        let transposed = rounded[RoundFloat8::TRANSPOSED];
        // The gradient of the weight comes first, so that the input need not live beside its gradient.
        let d_weight = builder.push(Linear::default(), [transposed, layer.transposed_input])?;
        let d_x = builder.push(Linear::default(), [rounded[0], layer.transposed_weight])?;
        let d_bias = rounded.get(RoundFloat8::SUMS).map(|&sums| Some(sums));
        Ok([Some(d_x), Some(d_weight)].into_iter().chain(d_bias).collect())
    }
}

/// Lets each run update the statistics of all roundings of a step. Returns the roundings with the `layers` that they belong to.
///
/// # Errors
///
/// [`Error::Graph`] if the graph is invalid.
pub(crate) fn update_statistics(graph: &mut Graph, layers: &[String]) -> Result<Vec<Rounding>> {
    let nodes = graph.nodes().to_vec();
    let mut roundings = Vec::new();
    for node in &nodes {
        let Op::RoundFloat8(op) = node.op else {
            continue;
        };
        let state = node.inputs[1];
        graph.update(state, node.outputs[RoundFloat8::STATISTICS])?;
        let state = graph.value(state).name.clone();
        let reads = |position: usize| {
            let readers = nodes
                .iter()
                .filter(|reader| reader.inputs.get(position) == Some(&node.output()));
            let names = readers.map(|reader| reader.name.clone());
            names
                .filter(|name| layers.contains(name))
                .collect::<Vec<String>>()
        };
        let [of_input, of_weight] = [0, 1].map(reads);
        let (operand, layers) = match op.format {
            Float8::E5M2 => {
                let layer = state.strip_suffix(&Operand::Gradient.state(""));
                (Operand::Gradient, layer.map(str::to_owned).into_iter().collect())
            }
            _ if of_weight.is_empty() => (Operand::Input, of_input),
            _ => (Operand::Weight, of_weight),
        };
        roundings.push(Rounding {
            state,
            layers,
            operand,
        });
    }
    Ok(roundings)
}
