//! Vision Transformers as graphs of typed ops over named values, with passes, memory plans and a reference interpreter. Pure: no device, no files.
//!
//! A model builder makes a [`Graph`]. [`optimize`] rewrites it, [`Plan`](plan::Plan) fixes the batch and places every activation, and an executor
//! runs the plan. [`interpret`] runs a graph in double precision, to check executors.

// Tests that other crates include name this crate as those do.
#[cfg(test)]
extern crate self as hipvit_graph;

mod arena;
mod array;
pub mod cases;
mod dtype;
mod error;
mod evaluate;
pub mod float8;
pub mod grad;
mod interpreter;
mod matmul;
pub mod non_finite;
pub mod op;
mod optimize;
mod passes;
pub mod plan;
pub mod reference;
mod rewrite;
mod shard;
mod stages;
mod stored;
pub mod tensor;
#[cfg(test)]
mod tests;
mod verify;

pub use hipvit_image::patch_grid;

pub use dtype::DType;
pub use error::{Error, Result};
pub use evaluate::evaluate;
pub use grad::grad;
pub use interpreter::{interpret, interpret_shards, interpret_stage_shards, interpret_stages};
pub use optimize::{Float8, Optimizations, PassReport, Passes, optimize};
pub use passes::CODE;
pub use passes::float8::store as store_float8;
pub use rewrite::{Rewriter, Rewritten, rewrite};
pub use shard::{shard, shard_stages};
pub use stages::{Stage, stages};

use std::fmt;

use ndarray::{Array2, ShapeError};
use serde::{Deserialize, Serialize};

use crate::op::{Linear, Op, Rounding};
use crate::tensor::{Input, Tensor};

/// Names a [`Value`] of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(u32);

impl ValueId {
    /// The position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from, and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueKind {
    /// The caller gives it with each run.
    Input,
    /// A weight that is trained: it survives runs, and runs may [write it](Graph::update).
    Parameter,
    /// What a model remembers, such as a running mean: it survives runs, and runs may [write it](Graph::update).
    State,
    /// A weight that never changes, so that passes may compute with it.
    Constant,
    /// A node computes it.
    Result,
}

/// What flows along an edge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// A unique, readable name; a constant's is the tensor's name in the weight file.
    pub name: String,
    /// The element type. Activations are f32 here; a plan may choose a narrower one.
    pub dtype: DType,
    /// The extents at batch 1, outermost first.
    pub shape: Vec<usize>,
    /// How its elements are rounded to 8 bits, if plans store it so, a row with what its own elements decide: see [`Float8::Stored`]
    /// and [`Passes::rounded_rows`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<Rounding>,
    /// Where it comes from.
    pub kind: ValueKind,
    /// A constant's elements, until [`Graph::release_constants`].
    #[serde(skip)]
    pub constant: Option<Tensor>,
    /// A parameter's or state's elements before the first run.
    #[serde(skip)]
    pub initial: Option<Tensor>,
}

impl Value {
    /// Whether it is a constant.
    pub fn is_constant(&self) -> bool {
        self.kind == ValueKind::Constant
    }

    /// Whether it survives runs, which may write it.
    pub fn is_stateful(&self) -> bool {
        matches!(self.kind, ValueKind::Parameter | ValueKind::State)
    }

    /// The result number `index` of the node `node`.
    fn result(node: &str, index: usize, shape: Vec<usize>) -> Self {
        Self {
            name: match index {
                0 => node.to_owned(),
                _ => format!("{node}.{index}"),
            },
            dtype: DType::F32,
            shape,
            rounding: None,
            kind: ValueKind::Result,
            constant: None,
            initial: None,
        }
    }
}

/// One op applied to some values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// A unique, readable name, such as `blocks.3.attn`.
    pub name: String,
    /// What is computed.
    pub op: Op,
    /// The operands, in the order that [`Op`] states.
    pub inputs: Vec<ValueId>,
    /// The results; most ops have one.
    pub outputs: Vec<ValueId>,
    /// The part of the model that a latency breakdown attributes the node to.
    pub role: Role,
}

impl Node {
    /// The first result.
    pub fn output(&self) -> ValueId {
        self.outputs[0]
    }
}

/// The parts of a Vision Transformer in a latency breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Normalisation, patch extraction and embedding, tokens.
    Patch,
    /// The projections to queries, keys and values.
    Qkv,
    /// Attention itself and its output projection.
    Attention,
    /// The feed-forward network.
    Ffn,
    /// Norms, pooling, the head.
    Other,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Patch => "patch",
            Self::Qkv => "QKV",
            Self::Attention => "attention",
            Self::Ffn => "FFN",
            Self::Other => "other",
        })
    }
}

/// What a graph's result means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputKind {
    /// One score per class, before softmax or sigmoid: `[B, classes]`.
    Logits,
    /// The image's feature vector: `[B, D]`.
    Embedding,
    /// All tokens before the first block: `[B, prefix + N, D]`.
    EmbeddedTokens,
    /// All tokens after the final norm: `[B, prefix + N, D]`.
    Tokens,
    /// All tokens after the block of this index, without a norm: `[B, prefix + N, D]`.
    HiddenLayer(usize),
    /// [Statistics](op::Attention::statistics) of the attention of this index: `[B, heads, queries, 3]`.
    AttentionStatistics(usize),
    /// What a [stage](stages()) of the model passes on to the next: `[B, prefix + N, D]`.
    Boundary,
    /// Derivative with respect to the value of this index among those given to [`grad()`], in that value's shape.
    Gradient(usize),
}

/// The shapes of the node's operands, by those of all values.
pub(crate) fn operands<'a>(node: &Node, shapes: &'a [Vec<usize>]) -> Vec<&'a [usize]> {
    node.inputs
        .iter()
        .map(|id| shapes[id.index()].as_slice())
        .collect()
}

/// An output's `values` as a matrix with a row per image, or per token of each image, as executors return it.
pub fn matrix<T>(shape: &[usize], values: Vec<T>) -> std::result::Result<Array2<T>, ShapeError> {
    let (columns, rows) = shape.split_last().unwrap_or((&1, &[]));
    Array2::from_shape_vec((rows.iter().product(), *columns), values)
}

/// A model: nodes in an order in which they can run. Shapes are those of batch 1; see [`Graph::shapes`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Graph {
    name: String,
    values: Vec<Value>,
    nodes: Vec<Node>,
    input: ValueId,
    outputs: Vec<(OutputKind, ValueId)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    updates: Vec<(ValueId, ValueId)>,
    optimizations: Optimizations,
    /// The input is not an image, but what an earlier [stage](stages()) left: activations, in a plan's dtype.
    takes_activations: bool,
    /// Of which rank of how many it is, if it is a [`shard()`].
    shard: Option<(usize, usize)>,
}

impl Graph {
    /// A graph of one input, `[1, …]`, and no node yet.
    pub fn new(name: impl Into<String>, input_shape: [usize; 4], input_dtype: DType) -> Self {
        let input = Value {
            name: "input".into(),
            dtype: input_dtype,
            shape: input_shape.to_vec(),
            rounding: None,
            kind: ValueKind::Input,
            constant: None,
            initial: None,
        };
        Self {
            name: name.into(),
            values: vec![input],
            nodes: Vec::new(),
            input: ValueId(0),
            outputs: Vec::new(),
            updates: Vec::new(),
            optimizations: Optimizations::default(),
            takes_activations: false,
            shard: None,
        }
    }

    /// As [`new`](Self::new), of an input that is activations, `[1, tokens, channels]`, in a plan's dtype.
    pub fn of_tokens(name: impl Into<String>, [tokens, channels]: [usize; 2]) -> Self {
        let mut graph = Self::new(name, [1, tokens, channels, 1], DType::F32);
        graph.values[0].shape.pop();
        graph.takes_activations = true;
        graph
    }

    /// The graph for inputs of another number of tokens. Only of a graph without a constant that has one for each token.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the node, if an op does not accept that many.
    pub fn with_tokens(&self, tokens: usize) -> Result<Self> {
        let mut graph = self.clone();
        graph.values[self.input.index()].shape[1] = tokens;
        let shapes = graph.shapes(1)?;
        for (value, shape) in graph.values.iter_mut().zip(shapes) {
            value.shape = shape;
        }
        Ok(graph)
    }

    /// What plans and executors of this graph do for speed: what [`optimize`] was given.
    pub fn optimizations(&self) -> Optimizations {
        self.optimizations
    }

    /// The shapes of the weights of linear layers that [round to FP8](op::Rounding::Float8).
    fn float8_weights(&self) -> impl Iterator<Item = &[usize]> {
        let rounds = |spec: &Linear| matches!(spec.rounding, Some(Rounding::Float8(_)));
        let nodes = self
            .nodes
            .iter()
            .filter(move |node| matches!(&node.op, Op::Linear(spec) if rounds(spec)));
        nodes.filter_map(|node| Some(self.value(*node.inputs.get(1)?).shape.as_slice()))
    }

    /// Whether a linear layer [rounds to FP8](op::Rounding::Float8).
    pub fn has_float8(&self) -> bool {
        self.float8_weights().next().is_some()
    }

    /// Whether a linear layer [rounds row by row](op::Rounding::is_of_rows).
    pub fn rounds_rows(&self) -> bool {
        let rounds = |spec: &Linear| spec.rounding.is_some_and(Rounding::is_of_rows);
        let mut nodes = self.nodes.iter();
        nodes.any(|node| matches!(&node.op, Op::Linear(spec) if rounds(spec)))
    }

    /// Whether each of `ranks` GPUs has a multiple of 16 channels of all such layers, as the libraries' GEMMs of FP8 take them. One GPU
    /// has a choice for each layer.
    pub fn divides_float8(&self, ranks: usize) -> bool {
        let divides = |shape: &[usize]| shape.iter().all(|n| n.is_multiple_of(16 * ranks));
        ranks == 1 || self.float8_weights().all(divides)
    }

    /// Whether the input is what an earlier [stage](stages()) of the model left, in a plan's dtype.
    pub fn takes_activations(&self) -> bool {
        self.takes_activations
    }

    /// Of which rank of how many it is, if it is a [`shard()`].
    pub fn shard(&self) -> Option<(usize, usize)> {
        self.shard
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All values, by [`ValueId::index`]; some may no longer be used by any node.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The ids of all values, in the order of [`values`](Self::values).
    pub fn ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        // A graph has thousands of values at most.
        (0..self.values.len() as u32).map(ValueId)
    }

    /// The value `id`.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The nodes, in an order in which they can run.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The one input: u8 pixels `[1,H,W,3]`, or f32 pixel values `[1,3,H,W]`.
    pub fn input(&self) -> ValueId {
        self.input
    }

    /// The results, each `[1, …]`.
    pub fn outputs(&self) -> &[(OutputKind, ValueId)] {
        &self.outputs
    }

    /// Declares `value` as a result.
    pub fn set_output(&mut self, kind: OutputKind, value: ValueId) {
        self.outputs.push((kind, value));
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        self.push_value(Value {
            name: name.into(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            rounding: None,
            kind: ValueKind::Constant,
            constant: Some(tensor),
            initial: None,
        })
    }

    /// Adds a weight that is trained. `tensor` has its elements before the first run.
    pub fn parameter(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        self.stateful(name.into(), ValueKind::Parameter, tensor)
    }

    /// Adds what the model remembers from run to run. `tensor` has its elements before the first run.
    pub fn state(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        self.stateful(name.into(), ValueKind::State, tensor)
    }

    fn stateful(&mut self, name: String, kind: ValueKind, tensor: Tensor) -> ValueId {
        self.push_value(Value {
            name,
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            rounding: None,
            kind,
            constant: None,
            initial: Some(tensor),
        })
    }

    /// Declares that every run ends by writing `result`, a node's, to the parameter or state `to`. All nodes of the run read what was there before.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if `to` does not survive runs, or if the shapes differ.
    pub fn update(&mut self, to: ValueId, result: ValueId) -> Result<()> {
        let (target, source) = (self.value(to), self.value(result));
        if !target.is_stateful() {
            return Err(Error::graph(
                &target.name,
                "is written, but is neither a parameter nor a state",
            ));
        }
        if target.shape != source.shape {
            let reason = format!(
                "has shape {:?}, but {:?} is written to it",
                target.shape, source.shape
            );
            return Err(Error::graph(&target.name, reason));
        }
        self.updates.push((to, result));
        Ok(())
    }

    /// Parameters and states that runs write, each with the result that is written to it.
    pub fn updates(&self) -> &[(ValueId, ValueId)] {
        &self.updates
    }

    /// Drops the constants' elements, once an executor has copied them. The rest can be planned and inspected, but not
    /// rewritten or given to another executor.
    pub fn release_constants(&mut self) {
        for value in &mut self.values {
            value.constant = None;
        }
    }

    /// Appends a node, infers the shapes of its results and returns the first of them.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] if the op does not accept the operands' shapes.
    pub fn push(
        &mut self,
        role: Role,
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: impl Into<Vec<ValueId>>,
    ) -> Result<ValueId> {
        Ok(self
            .push_node(role, name.into(), op.into(), inputs.into())?
            .output())
    }

    /// Appends a node, infers the shapes of its results and returns the node.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] if the op does not accept the operands' shapes.
    pub fn push_node(&mut self, role: Role, name: String, op: Op, inputs: Vec<ValueId>) -> Result<&Node> {
        let operands: Vec<&[usize]> = inputs.iter().map(|&id| self.value(id).shape.as_slice()).collect();
        let shapes = op
            .shapes(&operands)
            .map_err(|source| Error::op(&name, &op, source))?;
        let results = shapes.into_iter().enumerate();
        let outputs = results
            .map(|(index, shape)| self.push_value(Value::result(&name, index, shape)))
            .collect();
        let index = self.nodes.len();
        self.nodes.push(Node {
            name,
            op,
            inputs,
            outputs,
            role,
        });
        Ok(&self.nodes[index])
    }

    /// The shape of every value, by [`ValueId::index`], at batch size `batch`.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the node, if an op does not accept its operands' shapes.
    pub fn shapes(&self, batch: usize) -> Result<Vec<Vec<usize>>> {
        let mut shapes: Vec<Vec<usize>> = self.values.iter().map(|v| v.shape.clone()).collect();
        shapes[self.input.index()][0] = batch;
        for node in &self.nodes {
            let results = node.op.shapes(&operands(node, &shapes));
            let results = results.map_err(|source| Error::op(&node.name, &node.op, source))?;
            if results.len() != node.outputs.len() {
                let reason = format!("has {} results, its op {}", node.outputs.len(), results.len());
                return Err(Error::graph(&node.name, reason));
            }
            for (id, shape) in node.outputs.iter().zip(results) {
                shapes[id.index()] = shape;
            }
        }
        Ok(shapes)
    }

    /// Checks that `input` is what the graph takes for `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if its element type or its number of elements differs.
    pub fn check_input(&self, input: Input<'_>, batch: usize) -> Result<()> {
        let expected = self.value(self.input);
        if input.dtype() != expected.dtype {
            let reason = format!("is {}, expected {}", input.dtype(), expected.dtype);
            return Err(Error::argument("input", reason));
        }
        let image: usize = expected.shape.iter().skip(1).product();
        if batch == 0 || batch.checked_mul(image) != Some(input.len()) {
            let reason = format!(
                "has {} elements, expected {batch} × {image}, at least one image",
                input.len()
            );
            return Err(Error::argument("input", reason));
        }
        Ok(())
    }

    fn push_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        // A graph has thousands of values at most.
        ValueId((self.values.len() - 1) as u32)
    }
}
