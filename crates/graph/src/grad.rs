//! Reverse-mode differentiation: the backward pass of a graph, as nodes of a graph.
//!
//! [`grad`] asks each op for its vector-Jacobian product, [`Op::vjp`](crate::op::Op::vjp). Apply it to graphs before
//! [`optimize`](crate::optimize()), which then fuses the forward and the backward pass. Not every fused op has a derivative.
//! [`differentiate`] takes another [`Rule`] for some ops.

use crate::error::{Error, Result};
use crate::op::{Add, ExpandAs, Op, SumToSize};
use crate::tensor::Tensor;
use crate::{Graph, Node, OutputKind, Provenance, ValueId};

/// Appends the nodes that propagate gradients back through a node: maps the gradients of its results to those of its operands.
/// [`Op::vjp`](crate::op::Op::vjp) is the rule of derivatives.
pub type Rule<'a> = dyn Fn(&mut Graph, &Node, &[Option<ValueId>]) -> Result<Vec<Option<ValueId>>> + 'a;

/// Appends the backward pass of `output` to `graph`, and returns the gradient of each value that has one, by [`ValueId::index`].
///
/// `seed` is the gradient of `output` and has its shape. Gradients flow to the values `wrt` and to the values that depend on them. Other
/// gradients on the way, such as those of weights that are not in `wrt`, are nodes without a reader.
///
/// # Errors
///
/// [`Error::Graph`] or [`Error::Op`], naming the node that has no derivative.
pub fn differentiate(
    graph: &mut Graph,
    [output, seed]: [ValueId; 2],
    wrt: &[ValueId],
    rule: &Rule<'_>,
) -> Result<Vec<Option<ValueId>>> {
    let nodes = graph.nodes().to_vec();
    let mut depends = vec![false; graph.values().len()];
    wrt.iter().for_each(|id| depends[id.index()] = true);
    for node in &nodes {
        let depends_on = node.inputs.iter().any(|id| depends[id.index()]);
        for id in node.outputs.iter().filter(|_| depends_on) {
            depends[id.index()] = true;
        }
    }
    let mut gradients = vec![None; depends.len()];
    gradients[output.index()] = depends[output.index()].then_some(seed);
    for node in nodes.iter().rev() {
        let of_results: Vec<Option<ValueId>> = node.outputs.iter().map(|id| gradients[id.index()]).collect();
        let wanted = node.inputs.iter().any(|id| depends[id.index()]);
        if !wanted || of_results.iter().all(Option::is_none) {
            continue;
        }
        let of_operands = rule(graph, node, &of_results)?;
        for (id, gradient) in node.inputs.iter().zip(of_operands) {
            let Some(gradient) = gradient.filter(|_| depends[id.index()]) else {
                continue;
            };
            let sum = match gradients[id.index()] {
                Some(sum) => graph.push_backward(node, Add, [sum, gradient])?,
                None => gradient,
            };
            gradients[id.index()] = Some(sum);
        }
    }
    Ok(gradients)
}

/// Returns `graph` with its backward pass. The outputs [`OutputKind::Gradient`] are the derivatives with respect to each of `wrt`, in
/// order, of the sum of `output` over all elements and images. Sums have a fixed order, so that equal runs give equal bits.
///
/// # Errors
///
/// [`Error::Graph`] if a node has no derivative, or if `output` does not depend on a value of `wrt`.
pub fn grad(graph: &Graph, output: ValueId, wrt: &[ValueId]) -> Result<Graph> {
    let mut graph = graph.clone();
    let name = graph.value(output).name.clone();
    let seed = graph.push_seed(output)?;
    let vjp =
        |graph: &mut Graph, node: &Node, gradients: &[Option<ValueId>]| node.op.vjp(graph, node, gradients);
    let gradients = differentiate(&mut graph, [output, seed], wrt, &vjp)?;
    for (index, id) in wrt.iter().enumerate() {
        let Some(gradient) = gradients[id.index()] else {
            let reason = format!("`{name}` does not depend on it, or has no derivative with respect to it");
            return Err(Error::graph(&graph.value(*id).name, reason));
        };
        graph.set_output(OutputKind::Gradient(index), gradient);
    }
    Ok(graph.without_dead_code())
}

/// Nodes of backward passes.
impl Graph {
    /// Appends the initial gradient of a backward pass from `output`: ones in the shape of `output`, for any number of images.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the graph is invalid.
    pub fn push_seed(&mut self, output: ValueId) -> Result<ValueId> {
        let value = self.value(output);
        let (name, shape) = (value.name.clone(), value.shape.clone());
        let ones = vec![1.0; shape.iter().product()];
        let ones = Tensor::from_f32(shape, ones).ok_or_else(|| Error::graph(&name, "has no shape"))?;
        let seed = self.constant(Provenance::computed(format!("{name}.seed"), []), ones);
        let producer = self.nodes().iter().find(|node| node.outputs.contains(&output));
        match producer.cloned() {
            Some(node) if self.is_batched(output)? => self.push_backward(&node, ExpandAs, [seed, output]),
            _ => Ok(seed),
        }
    }

    /// Appends a node to the backward pass of `node`, and returns its first result.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] if the op does not accept the operands' shapes.
    pub fn push_backward(
        &mut self,
        node: &Node,
        op: impl Into<Op>,
        inputs: impl Into<Vec<ValueId>>,
    ) -> Result<ValueId> {
        Ok(self.push_backward_node(node, op, inputs.into())?.output())
    }

    /// Appends a node to the backward pass of `node`, and returns it.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] if the op does not accept the operands' shapes.
    pub fn push_backward_node(
        &mut self,
        node: &Node,
        op: impl Into<Op>,
        inputs: Vec<ValueId>,
    ) -> Result<&Node> {
        let name = self.backward_name(node);
        self.push_node(node.role, name, op.into(), inputs)
    }

    /// Appends a constant to the backward pass of `node`. It has `len` elements, which repeat `period`.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if `period` is empty.
    pub fn push_backward_constant(&mut self, node: &Node, len: usize, period: &[f32]) -> Result<ValueId> {
        let name = self.backward_name(node);
        let values: Vec<f32> = period.iter().copied().cycle().take(len).collect();
        let tensor = Tensor::from_f32([len], values)
            .ok_or_else(|| Error::graph(&node.name, "repeats an empty constant"))?;
        Ok(self.constant(Provenance::computed(name, []), tensor))
    }

    /// Returns `gradient`, summed to the shape of `value`. Needed if the value was repeated for every image, row or group of channels.
    pub(crate) fn summed_to(&mut self, node: &Node, gradient: ValueId, value: ValueId) -> Result<ValueId> {
        let shape = &self.value(value).shape;
        if *shape == self.value(gradient).shape && self.is_batched(gradient)? == self.is_batched(value)? {
            return Ok(gradient);
        }
        let op = SumToSize { shape: shape.clone() };
        self.push_backward(node, op, [gradient])
    }

    /// True if the first extent of `id` is the batch size.
    fn is_batched(&self, id: ValueId) -> Result<bool> {
        let value = self.value(id);
        if value.is_constant() || value.is_stateful() {
            return Ok(false);
        }
        Ok(self.shapes(2)?[id.index()].first() != value.shape.first())
    }

    /// Returns a unique name. The values of a node's backward pass are appended consecutively, so that counting them gives each a number.
    fn backward_name(&self, node: &Node) -> String {
        let prefix = format!("{}.backward", node.name);
        let last = self.values().iter().rev();
        match last.take_while(|value| value.name.starts_with(&prefix)).count() {
            0 => prefix,
            count => format!("{prefix}.{count}"),
        }
    }
}

/// Returns the gradient of the only result of `node`.
pub(crate) fn only(node: &Node, gradients: &[Option<ValueId>]) -> Result<ValueId> {
    let first = gradients.first().copied().flatten();
    first.ok_or_else(|| Error::graph(&node.name, "is differentiated without a gradient of its result"))
}
