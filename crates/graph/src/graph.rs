//! The graph: nodes that apply ops to values.

use std::borrow::Cow;
use std::fmt;

use ndarray::{Array2, ShapeError};
use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Linear, NodeValues, Op, Rounding};
use crate::optimizations::Optimizations;
use crate::provenance::Provenance;
use crate::tensor::Tensor;
use crate::value::{FirstInput, GraphInput, Value, ValueId, ValueKind};

/// An op applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique, readable name, such as `blocks.3.attn`.
    pub name: String,
    /// The op with its attributes.
    pub op: Op,
    /// Operands, in the order of the [`Op`].
    pub inputs: Vec<ValueId>,
    /// Results. Most ops have one.
    pub outputs: Vec<ValueId>,
    /// Part of the model that a latency breakdown assigns the node to.
    pub role: Role,
}

impl Node {
    /// Returns the first result.
    pub fn output(&self) -> ValueId {
        self.outputs[0]
    }

    /// Returns the index of the transformer block that the node is part of. Builders name such nodes `blocks.<index>.…`.
    pub fn block(&self) -> Option<usize> {
        let (index, _) = self.name.strip_prefix("blocks.")?.split_once('.')?;
        index.parse().ok()
    }

    /// Returns the operands and results, as derivatives of ops take them.
    pub fn values(&self) -> NodeValues<'_> {
        NodeValues {
            inputs: &self.inputs,
            outputs: &self.outputs,
        }
    }
}

/// Parts of a Vision Transformer in a latency breakdown.
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

/// Meaning of a graph's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputKind {
    /// A score per class, before softmax or sigmoid: `[B, classes]`.
    Logits,
    /// Feature vector of the image: `[B, D]`.
    Embedding,
    /// All tokens before the first block: `[B, prefix + N, D]`.
    EmbeddedTokens,
    /// All tokens after the final norm: `[B, prefix + N, D]`.
    Tokens,
    /// All tokens after the block with this index, without a norm: `[B, prefix + N, D]`.
    HiddenLayer(usize),
    /// [Statistics](crate::op::Attention::statistics) of the attention layer with this index: `[B, heads, queries, 3]`.
    AttentionStatistics(usize),
    /// Activations that a [stage](crate::stages()) of the model passes to the next one: `[B, prefix + N, D]`.
    Boundary,
    /// [Loss](crate::op::Loss) of each image: `[B, 1]`.
    Loss,
    /// [Norm](crate::op::L2Norm) of all gradients together: `[1, 1]`.
    GradientNorm,
    /// Derivative with respect to the value with this index in the list given to [`grad()`](crate::grad()), in the shape of that value.
    Gradient(usize),
    /// Output with this index among those that [`Graph::add_output`] has named, of any shape.
    Named(usize),
}

impl OutputKind {
    /// Returns the name, such as `logits` or `hidden_layer.3`. [`Graph::output_name`] returns the name of a [named](Self::Named) output.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Logits => "logits".into(),
            Self::Embedding => "embedding".into(),
            Self::EmbeddedTokens => "embedded_tokens".into(),
            Self::Tokens => "tokens".into(),
            Self::HiddenLayer(block) => format!("hidden_layer.{block}").into(),
            Self::AttentionStatistics(index) => format!("attention_statistics.{index}").into(),
            Self::Boundary => "boundary".into(),
            Self::Loss => "loss".into(),
            Self::GradientNorm => "gradient_norm".into(),
            Self::Gradient(index) => format!("gradient.{index}").into(),
            Self::Named(index) => format!("output.{index}").into(),
        }
    }
}

/// Returns the shapes of the node's operands. `shapes` has those of all values.
pub(crate) fn operands<'a>(node: &Node, shapes: &'a [Vec<usize>]) -> Vec<&'a [usize]> {
    node.inputs
        .iter()
        .map(|id| shapes[id.index()].as_slice())
        .collect()
}

/// Returns an output's `values` as a matrix with a row per image, or per token of each image, as executors return it.
pub fn matrix<T>(shape: &[usize], values: Vec<T>) -> std::result::Result<Array2<T>, ShapeError> {
    let (columns, rows) = shape.split_last().unwrap_or((&1, &[]));
    Array2::from_shape_vec((rows.iter().product(), *columns), values)
}

/// A model: nodes in topological order. Shapes are those at batch 1; see [`Graph::shapes`].
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) input: ValueId,
    /// Inputs beside `input`.
    pub(crate) more_inputs: Vec<GraphInput>,
    pub(crate) outputs: Vec<(OutputKind, ValueId)>,
    /// Names of [`OutputKind::Named`].
    pub(crate) output_names: Vec<String>,
    pub(crate) updates: Vec<(ValueId, ValueId)>,
    pub(crate) optimizations: Optimizations,
    pub(crate) first_input: FirstInput,
    /// `(rank, ranks)` if this graph is a [`shard()`](crate::shard()).
    pub(crate) shard: Option<(usize, usize)>,
}

impl Graph {
    /// Creates a graph with one input, `[1, …]`, and no nodes.
    pub fn new(name: impl Into<String>, input_shape: [usize; 4], input_dtype: DType) -> Self {
        let input = Value {
            name: "input".into(),
            dtype: input_dtype,
            shape: input_shape.to_vec(),
            rounding: None,
            kind: ValueKind::Input,
            provenance: None,
            constant: None,
            initial: None,
        };
        Self {
            name: name.into(),
            values: vec![input],
            nodes: Vec::new(),
            input: ValueId(0),
            more_inputs: Vec::new(),
            outputs: Vec::new(),
            output_names: Vec::new(),
            updates: Vec::new(),
            optimizations: Optimizations::default(),
            first_input: FirstInput::Images { per_image: true },
            shard: None,
        }
    }

    /// Creates a graph whose input is activations `[1, tokens, channels]`, in a plan's dtype.
    pub fn of_tokens(name: impl Into<String>, [tokens, channels]: [usize; 2]) -> Self {
        let mut graph = Self::new(name, [1, tokens, channels, 1], DType::F32);
        graph.values[0].shape.pop();
        graph.first_input = FirstInput::Activations;
        graph
    }

    /// Returns the graph for inputs with another number of tokens. The graph must have no constant with a row per token.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the node, if an op rejects this number.
    pub fn with_tokens(&self, tokens: usize) -> Result<Self> {
        let mut graph = self.clone();
        graph.values[self.input.index()].shape[1] = tokens;
        let shapes = graph.shapes(1)?;
        for (value, shape) in graph.values.iter_mut().zip(shapes) {
            value.shape = shape;
        }
        Ok(graph)
    }

    /// Returns the optimisations given to [`optimize`](crate::optimize()), for plans and executors of this graph.
    pub fn optimizations(&self) -> Optimizations {
        self.optimizations
    }

    /// Returns the shapes of the weights of linear layers that [round to FP8](crate::op::Rounding::Float8).
    fn float8_weights(&self) -> impl Iterator<Item = &[usize]> {
        let rounds = |spec: &Linear| matches!(spec.rounding, Some(Rounding::Float8(_)));
        let nodes = self
            .nodes
            .iter()
            .filter(move |node| matches!(&node.op, Op::Linear(spec) if rounds(spec)));
        nodes.filter_map(|node| Some(self.value(*node.inputs.get(1)?).shape.as_slice()))
    }

    /// Returns true if a linear layer [rounds to FP8](crate::op::Rounding::Float8).
    pub fn has_float8(&self) -> bool {
        self.float8_weights().next().is_some()
    }

    /// Returns true if a linear layer [rounds row by row](crate::op::Rounding::is_of_rows).
    pub fn rounds_rows(&self) -> bool {
        let rounds = |spec: &Linear| spec.rounding.is_some_and(Rounding::is_of_rows);
        let mut nodes = self.nodes.iter();
        nodes.any(|node| matches!(&node.op, Op::Linear(spec) if rounds(spec)))
    }

    /// Returns true if each of `ranks` GPUs gets a multiple of 16 channels of all these layers, as the FP8 GEMMs of the libraries require.
    /// A single GPU chooses per layer.
    pub fn divides_float8(&self, ranks: usize) -> bool {
        let divides = |shape: &[usize]| shape.iter().all(|n| n.is_multiple_of(16 * ranks));
        ranks == 1 || self.float8_weights().all(divides)
    }

    /// Returns `(rank, ranks)` if this graph is a [`shard()`](crate::shard()).
    pub fn shard(&self) -> Option<(usize, usize)> {
        self.shard
    }

    /// Returns the name of the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all values, by [`ValueId::index`]. Some may not be used by any node.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the ids of all values, in the order of [`values`](Self::values).
    pub fn ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        // A graph has at most thousands of values.
        (0..self.values.len() as u32).map(ValueId)
    }

    /// Returns the value `id`.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Returns the nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the first input: u8 pixels `[1,H,W,3]`, f32 pixel values `[1,3,H,W]`, activations, or an input
    /// [with its own name](Self::of_values). See [`inputs`](Self::inputs) for all inputs.
    pub fn input(&self) -> ValueId {
        self.input
    }

    /// Returns the outputs. Each is `[1, …]`, unless it is a gradient or [named](OutputKind::Named).
    pub fn outputs(&self) -> &[(OutputKind, ValueId)] {
        &self.outputs
    }

    /// Declares `value` an output.
    pub fn set_output(&mut self, kind: OutputKind, value: ValueId) {
        self.outputs.push((kind, value));
    }

    /// Declares `value`, of any shape, an output of this name. Returns its [kind](OutputKind::Named).
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the output, if the name is taken by an earlier call.
    pub fn add_output(&mut self, name: impl Into<String>, value: ValueId) -> Result<OutputKind> {
        let name = name.into();
        if self.output_names.contains(&name) {
            return Err(Error::graph(
                name,
                "is the name of two outputs. Choose another name",
            ));
        }
        let kind = OutputKind::Named(self.output_names.len());
        self.output_names.push(name);
        self.outputs.push((kind, value));
        Ok(kind)
    }

    /// Returns the name of an output: the one given to [`add_output`](Self::add_output), or the [name of its kind](OutputKind::name).
    pub fn output_name(&self, kind: OutputKind) -> Cow<'_, str> {
        let given = match kind {
            OutputKind::Named(index) => self.output_names.get(index),
            _ => None,
        };
        given.map_or_else(|| kind.name(), |name| name.as_str().into())
    }

    /// Keeps the outputs of some kinds, and drops the others.
    pub fn retain_outputs(&mut self, mut keep: impl FnMut(OutputKind) -> bool) {
        self.outputs.retain(|&(kind, _)| keep(kind));
    }

    /// Adds a constant. Its name shows where its elements come from: `"w"` is the model's tensor of this name.
    pub fn constant(&mut self, provenance: impl Into<Provenance>, tensor: Tensor) -> ValueId {
        let provenance = provenance.into();
        self.push_constant(provenance.to_string(), provenance, tensor)
    }

    pub(crate) fn push_constant(&mut self, name: String, provenance: Provenance, tensor: Tensor) -> ValueId {
        self.push_value(Value {
            name,
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            rounding: None,
            kind: ValueKind::Constant,
            provenance: Some(provenance),
            constant: Some(tensor),
            initial: None,
        })
    }

    /// Adds a trained weight. `tensor` has its elements before the first run.
    pub fn parameter(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        self.stateful(name.into(), ValueKind::Parameter, tensor)
    }

    /// Adds state that persists across runs. `tensor` has its elements before the first run.
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
            provenance: None,
            constant: None,
            initial: Some(tensor),
        })
    }

    /// Makes every run end by writing `result`, the result of a node, to the parameter or state `to`. All nodes of the run read the
    /// previous value.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if `to` is not a parameter or state, is already written, or has another shape.
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
        if self.updates.iter().any(|&(known, _)| known == to) {
            return Err(Error::graph(
                &target.name,
                "is written twice. Write it once per run",
            ));
        }
        self.updates.push((to, result));
        Ok(())
    }

    /// Returns the parameters and states.
    pub fn states(&self) -> impl Iterator<Item = ValueId> {
        self.ids().filter(|&id| self.value(id).is_stateful())
    }

    /// Returns the parameters and states that runs update, each with the new value.
    pub fn updates(&self) -> &[(ValueId, ValueId)] {
        &self.updates
    }

    /// Drops the elements of constants, parameters and states once an executor has copied them. The graph can still be planned and
    /// inspected, but not rewritten or passed to another executor.
    pub fn release_constants(&mut self) {
        for value in &mut self.values {
            value.constant = None;
            value.initial = None;
        }
    }

    /// Appends a node, infers the shapes of its results, and returns the first result.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] if the op rejects the shapes of the operands.
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

    /// Appends a node, infers the shapes of its results, and returns the node.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] if the op rejects the shapes of the operands.
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

    /// Returns the shape of every value, by [`ValueId::index`], at batch size `batch`.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the node, if an op rejects the shapes of its operands.
    pub fn shapes(&self, batch: usize) -> Result<Vec<Vec<usize>>> {
        let mut shapes: Vec<Vec<usize>> = self.values.iter().map(|v| v.shape.clone()).collect();
        for input in self.inputs().filter(|input| input.per_image) {
            shapes[input.value.index()] = self.input_shape(input, batch);
        }
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

    pub(crate) fn push_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        // A graph has at most thousands of values.
        ValueId((self.values.len() - 1) as u32)
    }
}
