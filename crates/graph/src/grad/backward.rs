//! Nodes of backward passes.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::{ExpandAs, Op, SumToSize};
use crate::provenance::Provenance;
use crate::tensor::Tensor;
use crate::value::ValueId;

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
