//! The interface through which derivatives of ops append nodes to a graph.

use std::any::Any;

use super::{OpError, Shape};
use crate::value::ValueId;

/// Gradients of a node's operands or results, in their order. `None` for a value without a gradient.
pub type Gradients = Vec<Option<ValueId>>;

/// Operands and results of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeValues<'a> {
    /// Operands, in the order of the op.
    pub inputs: &'a [ValueId],
    /// Results.
    pub outputs: &'a [ValueId],
}

/// An op that a [`GraphBuilder`] can append: the attributes of a registered op, or [`Op`](super::Op).
pub trait AnyOp: Any {}

/// Appends the backward pass of one node to its graph. Derivatives of ops use it, so that ops do not depend on graphs.
pub trait GraphBuilder {
    /// Returns the shape of a value at batch 1.
    fn shape(&self, value: ValueId) -> &[usize];

    /// Returns the shape of a value at another batch size. It tells which extent grows with the batch.
    ///
    /// # Errors
    ///
    /// [`OpError`] if an op rejects the shapes of its operands at this batch size.
    fn shape_at(&self, value: ValueId, batch: usize) -> Result<Shape, OpError>;

    /// Appends a constant vector of `len` elements, which repeat `period`.
    ///
    /// # Errors
    ///
    /// [`OpError`] if `period` is empty.
    fn constant(&mut self, len: usize, period: &[f32]) -> Result<ValueId, OpError>;

    /// Returns `gradient`, summed to the shape of `value`. Needed if the value was repeated for every image, row or group of channels.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the sum is not possible.
    fn sum_to_size(&mut self, gradient: ValueId, value: ValueId) -> Result<ValueId, OpError>;

    /// Appends a node and returns its results. `op` is an [`AnyOp`]; its type is erased, because ops are below the enum of all ops.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op is not registered, or does not accept the operands' shapes.
    fn push_erased(&mut self, op: &dyn Any, operands: Vec<ValueId>) -> Result<Vec<ValueId>, OpError>;
}

impl dyn GraphBuilder + '_ {
    /// Appends a node and returns its first result.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op does not accept the operands' shapes.
    pub fn push(&mut self, op: impl AnyOp, operands: impl Into<Vec<ValueId>>) -> Result<ValueId, OpError> {
        let results = self.push_node(op, operands)?;
        results
            .first()
            .copied()
            .ok_or_else(|| OpError::derivative("its derivative emits an op without results"))
    }

    /// Appends a node and returns its results.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op does not accept the operands' shapes.
    pub fn push_node(
        &mut self,
        op: impl AnyOp,
        operands: impl Into<Vec<ValueId>>,
    ) -> Result<Vec<ValueId>, OpError> {
        self.push_erased(&op, operands.into())
    }
}

/// Returns the gradient of a node's only result.
///
/// # Errors
///
/// [`OpError`] if the result has no gradient.
pub fn only_gradient(gradients: &[Option<ValueId>]) -> Result<ValueId, OpError> {
    let first = gradients.first().copied().flatten();
    first.ok_or_else(|| OpError::derivative("is differentiated without a gradient of its result"))
}
