//! Forward passes of a graph by the reference implementation, which keep all values for a backward pass. They use f64 for accuracy, or f32
//! if one image takes many runs.

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, ValueId, evaluate};
use hipvit::ops::Op;
use hipvit::reference::{Array, Real};

/// A graph with its constants in the type of the computation.
pub(crate) struct Program<T> {
    graph: Graph,
    constants: Vec<Option<Array<T>>>,
}

/// A forward pass.
pub(crate) struct Run<'p, T> {
    program: &'p Program<T>,
    values: Vec<Option<Array<T>>>,
}

impl<T: Real> Program<T> {
    /// Converts the constants of a graph.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] for a released constant, and for one rank's part of a model.
    pub(crate) fn new(graph: &Graph) -> Result<Self> {
        for node in graph.nodes() {
            if let Op::AllReduce(_) = node.op {
                let reason = format!(
                    "{} sums over ranks: explain the whole model instead",
                    node.op.name()
                );
                return Err(Error::graph(&node.name, reason));
            }
            if let Op::GridPositions(_) | Op::GridMask(_) = node.op {
                let reason = "models for images of any aspect ratio are not explained";
                return Err(Error::graph(&node.name, reason));
            }
        }
        let constant = |value: &hipvit::graph::Value| match &value.constant {
            Some(tensor) => Ok(Some(Array::from(tensor))),
            None if value.is_constant() => Err(Error::graph(&value.name, "is a constant that was released")),
            None => Ok(None),
        };
        let constants = graph.values().iter().map(constant).collect::<Result<_>>()?;
        let mut graph = graph.clone();
        graph.release_constants();
        Ok(Self { graph, constants })
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `input` is not whole images. [`Error::Graph`] if the operands of a node do not fit its op.
    pub(crate) fn run(&self, batch: usize, input: Vec<T>) -> Result<Run<'_, T>> {
        let input_id = self.graph.input();
        let mut shape = self.graph.value(input_id).shape.clone();
        shape[0] = batch;
        let (found, expected) = (input.len(), shape.iter().product::<usize>());
        let input = Array::new(shape, input).filter(|_| batch > 0);
        let input = input
            .ok_or_else(|| Error::argument("input", format!("has {found} elements, expected {expected}")))?;
        let results = self.graph.nodes().iter().flat_map(|node| &node.outputs);
        let results: Vec<ValueId> = results.copied().collect();
        let known = |id: ValueId| {
            if id == input_id {
                return Some(&input);
            }
            self.constants[id.index()].as_ref()
        };
        let mut values = evaluate(&self.graph, known, &results)?;
        values[input_id.index()] = Some(input);
        Ok(Run {
            program: self,
            values,
        })
    }
}

impl<'p, T: Real> Run<'p, T> {
    pub(crate) fn program(&self) -> &'p Program<T> {
        self.program
    }

    pub(crate) fn graph(&self) -> &'p Graph {
        &self.program.graph
    }

    /// Returns a value of this run. `None` if the graph does not have it.
    pub(super) fn array(&self, id: ValueId) -> Option<&Array<T>> {
        let computed = self.values.get(id.index())?.as_ref();
        computed.or(self.program.constants[id.index()].as_ref())
    }

    /// Elements of a value of this run.
    pub(crate) fn value(&self, id: ValueId) -> &[T] {
        self.array(id).map_or(&[], Array::values)
    }

    /// Extents of a value of this run.
    pub(crate) fn shape(&self, id: ValueId) -> &[usize] {
        self.array(id).map_or(&[], Array::shape)
    }

    /// Operands of a node.
    pub(super) fn operands(&self, node: &Node) -> Vec<&Array<T>> {
        node.inputs.iter().filter_map(|&id| self.array(id)).collect()
    }
}
