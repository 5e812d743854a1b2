//! Nodes of backward passes.

use std::any::Any;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::{AnyOp, ExpandAs, GraphBuilder, Op, OpError, Shape, SumToSize};
use crate::provenance::Provenance;
use crate::tensor::Tensor;
use crate::value::ValueId;

/// The [`GraphBuilder`] of the backward pass of a node. Appended nodes have the node's role and a name derived from its name.
pub(crate) struct Backward<'a> {
    graph: &'a mut Graph,
    node: &'a Node,
}

impl GraphBuilder for Backward<'_> {
    fn shape(&self, value: ValueId) -> &[usize] {
        &self.graph.value(value).shape
    }

    fn shape_at(&self, value: ValueId, batch: usize) -> Result<Shape, OpError> {
        let mut shapes = self.graph.shapes(batch).map_err(OpError::derivative)?;
        Ok(shapes.swap_remove(value.index()))
    }

    fn constant(&mut self, len: usize, period: &[f32]) -> Result<ValueId, OpError> {
        let values: Vec<f32> = period.iter().copied().cycle().take(len).collect();
        let tensor = Tensor::from_f32([len], values)
            .ok_or_else(|| OpError::derivative("its derivative repeats an empty constant"))?;
        let name = self.name();
        Ok(self.graph.constant(Provenance::computed(name, []), tensor))
    }

    fn sum_to_size(&mut self, gradient: ValueId, value: ValueId) -> Result<ValueId, OpError> {
        let shape = self.shape(value).to_vec();
        let is_batched = |id| is_batched(self.graph, id).map_err(OpError::derivative);
        if shape == self.shape(gradient) && is_batched(gradient)? == is_batched(value)? {
            return Ok(gradient);
        }
        self.push(SumToSize { shape }, [gradient])
    }

    fn push_erased(&mut self, op: &dyn Any, operands: Vec<ValueId>) -> Result<Vec<ValueId>, OpError> {
        let op = Op::from_any(op).ok_or_else(|| {
            OpError::derivative("its derivative emits an op that `for_each_op!` does not list")
        })?;
        let name = self.name();
        let node = self.graph.push_node(self.node.role, name, op, operands);
        let node =
            node.map_err(|error| OpError::derivative(format!("its derivative is invalid: {error}")))?;
        Ok(node.outputs.clone())
    }
}

impl<'a> Backward<'a> {
    pub(crate) fn new(graph: &'a mut Graph, node: &'a Node) -> Self {
        Self { graph, node }
    }

    /// Appends a node and returns its first result.
    pub(crate) fn push(
        &mut self,
        op: impl AnyOp,
        operands: impl Into<Vec<ValueId>>,
    ) -> Result<ValueId, OpError> {
        let builder: &mut dyn GraphBuilder = self;
        builder.push(op, operands)
    }

    /// Returns a unique name. The values of a node's backward pass are appended consecutively, so that counting them gives each a number.
    fn name(&self) -> String {
        let prefix = format!("{}.backward", self.node.name);
        let last = self.graph.values().iter().rev();
        match last.take_while(|value| value.name.starts_with(&prefix)).count() {
            0 => prefix,
            count => format!("{prefix}.{count}"),
        }
    }
}

impl Graph {
    /// Appends the initial gradient of a backward pass from `output`: ones in the shape of `output`, for any number of images.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] or [`Error::Op`] if the graph is invalid.
    pub fn push_seed(&mut self, output: ValueId) -> Result<ValueId> {
        let value = self.value(output);
        let (name, shape) = (value.name.clone(), value.shape.clone());
        let ones = vec![1.0; shape.iter().product()];
        let ones = Tensor::from_f32(shape, ones).ok_or_else(|| Error::graph(&name, "has no shape"))?;
        let seed = self.constant(Provenance::computed(format!("{name}.seed"), []), ones);
        let producer = self.nodes().iter().find(|node| node.outputs.contains(&output));
        match producer.cloned() {
            Some(node) if is_batched(self, output)? => {
                let mut backward = Backward::new(self, &node);
                let seeds = backward.push(ExpandAs, [seed, output]);
                seeds.map_err(|source| Error::op(&node.name, &node.op, source))
            }
            _ => Ok(seed),
        }
    }
}

/// Returns true if the first extent of `id` is the batch size.
fn is_batched(graph: &Graph, id: ValueId) -> Result<bool> {
    let value = graph.value(id);
    if value.is_constant() || value.is_stateful() {
        return Ok(false);
    }
    Ok(graph.shapes(2)?[id.index()].first() != value.shape.first())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::op::{MulScalar, Slice};

    #[test]
    fn errors_of_a_derivative_name_what_it_emits() {
        let mut graph = Graph::of_tokens("test", [2, 3]);
        let input = graph.input();
        graph.push(Role::Other, "half", MulScalar(0.5), [input]).unwrap();
        let node = graph.nodes()[0].clone();
        let mut backward = Backward::new(&mut graph, &node);
        let slice = Slice::new(1, 1, 2);
        let error = backward.push(slice, [input]).unwrap_err().to_string();
        assert_eq!(
            error,
            "its derivative is invalid: node `half.backward`: [1, 2, 3] does not have this part"
        );
        let error = backward.push_erased(&"slice", vec![input]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "its derivative emits an op that `for_each_op!` does not list"
        );
        // An op may also be given as the enum.
        assert!(backward.push(Op::from(MulScalar(2.0)), [input]).is_ok());
    }
}
