//! Interpreter of graphs by the reference implementation, in double precision.

use std::collections::HashMap;

use ndarray::Array2;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, OutputKind, matrix};
use crate::stages::Stage;
use crate::tensor::Input;
use crate::value::{GraphInput, ValueId};

/// Outputs of a graph, each as `[B, channels]` or `[B·tokens, channels]`.
type Outputs = Vec<(OutputKind, Array2<f64>)>;

/// Runs `graph`, optimised or not, on `batch` images. Returns each output as `[B, channels]` or `[B·tokens, channels]`.
///
/// # Errors
///
/// [`Error::Argument`] if `input` does not fit the graph. [`Error::Graph`] if the operands of a node do not fit its op.
pub fn interpret(graph: &Graph, batch: usize, input: Input<'_>) -> Result<Outputs> {
    Interpreter::new(graph).run(batch, &[input])
}

/// Runs a graph repeatedly, and keeps its parameters and states between the runs.
#[derive(Clone, Debug)]
pub struct Interpreter<'a> {
    graph: &'a Graph,
    states: HashMap<ValueId, Array>,
}

impl<'a> Interpreter<'a> {
    /// Creates an interpreter with the initial elements of the graph's parameters and states.
    pub fn new(graph: &'a Graph) -> Self {
        let initial = |id| Some((id, Array::from(graph.value(id).initial.as_ref()?)));
        Self {
            graph,
            states: graph.states().filter_map(initial).collect(),
        }
    }

    /// Runs the graph on `batch` images, and updates its parameters and states. `inputs` are in the order of [`Graph::inputs`]. Returns
    /// each output as `[B, channels]` or `[B·tokens, channels]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an input is missing or does not fit the graph. [`Error::Graph`] if the operands of a node do not fit its op.
    pub fn run(&mut self, batch: usize, inputs: &[Input<'_>]) -> Result<Outputs> {
        self.graph.check_inputs(inputs, batch)?;
        let mut values = Values::new(self.graph);
        for (of_graph, &input) in self.graph.inputs().zip(inputs) {
            values.values[of_graph.value.index()] = Some(elements(self.graph, of_graph, batch, input)?);
        }
        for (id, state) in &self.states {
            values.values[id.index()] = Some(state.clone());
        }
        let mut ranks = [values];
        run(&mut ranks)?;
        let [mut values] = ranks;
        for &(to, result) in self.graph.updates() {
            let new = values.values[result.index()].clone();
            let name = &self.graph.value(to).name;
            let new =
                new.ok_or_else(|| Error::graph(name, "is written with a value that no node computes"))?;
            self.states.insert(to, new);
        }
        values.outputs()
    }

    /// Returns the elements of a parameter or state after the last run. `None` for another value.
    pub fn state(&self, id: ValueId) -> Option<&Array> {
        self.states.get(&id)
    }
}

/// Runs the [shards](super::shard()) of a graph in lock step on the same images. Returns the outputs of each shard.
///
/// # Errors
///
/// The errors of [`interpret`], and [`Error::Graph`] if the graphs do not have the same nodes.
pub fn interpret_shards(shards: &[Graph], batch: usize, input: Input<'_>) -> Result<Vec<Outputs>> {
    let start = |graph| {
        Graph::check_input(graph, input, batch)?;
        Ok(Values::new(graph).with_input(image(graph, batch, input)?))
    };
    let mut ranks = shards.iter().map(start).collect::<Result<Vec<_>>>()?;
    run(&mut ranks)?;
    ranks.iter_mut().map(Values::outputs).collect()
}

/// Runs the [stages](super::stages()) of a graph one after the other. Returns the outputs in the order of the whole graph.
///
/// # Errors
///
/// The errors of [`interpret`].
pub fn interpret_stages(stages: &[Stage], batch: usize, input: Input<'_>) -> Result<Outputs> {
    let mut results = interpret_stage_shards(&[stages], batch, input)?;
    Ok(results.pop().unwrap_or_default())
}

/// Runs the [shards of stages](super::shard_stages()): the ranks of each stage in lock step, and the stages one after the other. Returns
/// the outputs of each rank, in the order of the whole graph.
///
/// # Errors
///
/// The errors of [`interpret_shards`], and [`Error::Graph`] if the ranks have different numbers of stages.
pub fn interpret_stage_shards(ranks: &[&[Stage]], batch: usize, input: Input<'_>) -> Result<Vec<Outputs>> {
    let mut results: Vec<Vec<_>> = ranks.iter().map(|_| Vec::new()).collect();
    let mut boundaries: Vec<Option<Array>> = ranks.iter().map(|_| None).collect();
    for index in 0..ranks.first().map_or(0, |stages| stages.len()) {
        let mut values = Vec::with_capacity(ranks.len());
        for (stages, boundary) in ranks.iter().zip(&mut boundaries) {
            let Some(Stage { graph, .. }) = stages.get(index) else {
                return Err(Error::graph("shards", format!("a rank has no stage {index}")));
            };
            let entry = match boundary.take() {
                Some(entry) => entry,
                None => {
                    graph.check_input(input, batch)?;
                    image(graph, batch, input)?
                }
            };
            values.push(Values::new(graph).with_input(entry));
        }
        run(&mut values)?;
        for (rank, values) in values.iter_mut().enumerate() {
            let Stage { graph, outputs, .. } = &ranks[rank][index];
            boundaries[rank] = match graph.outputs().last() {
                Some(&(OutputKind::Boundary, id)) => values.values[id.index()].clone(),
                _ => None,
            };
            results[rank].extend(outputs.iter().copied().zip(values.outputs()?));
        }
    }
    let whole = |mut results: Vec<(usize, _)>| {
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, output)| output).collect()
    };
    Ok(results.into_iter().map(whole).collect())
}

/// Values of a running graph.
struct Values<'a> {
    graph: &'a Graph,
    values: Vec<Option<Array>>,
    /// Index of the last node that reads each value.
    last_use: Vec<usize>,
}

impl<'a> Values<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut last_use = vec![0; graph.values().len()];
        for (index, node) in graph.nodes().iter().enumerate() {
            for id in &node.inputs {
                last_use[id.index()] = index;
            }
        }
        let outputs = graph.outputs().iter().map(|&(_, id)| id);
        for id in outputs.chain(graph.updates().iter().map(|&(_, result)| result)) {
            last_use[id.index()] = usize::MAX;
        }
        Self {
            graph,
            values: vec![None; graph.values().len()],
            last_use,
        }
    }

    fn with_input(mut self, input: Array) -> Self {
        self.values[self.graph.input().index()] = Some(input);
        self
    }

    fn operands(&mut self, node: &Node) -> Result<Vec<&Array>> {
        for &id in &node.inputs {
            load_constant(self.graph, &mut self.values, id);
        }
        let operands: Option<Vec<&Array>> = node
            .inputs
            .iter()
            .map(|id| self.values[id.index()].as_ref())
            .collect();
        operands.ok_or_else(|| {
            Error::graph(
                &node.name,
                "an operand is computed only later, or is a constant that was released",
            )
        })
    }

    /// Stores the results of node number `index`, and drops the values without later readers.
    fn keep(&mut self, index: usize, results: Vec<Array>) {
        let node = &self.graph.nodes()[index];
        for (id, result) in node.outputs.iter().zip(results) {
            self.values[id.index()] = Some(result);
        }
        for id in &node.inputs {
            if self.last_use[id.index()] == index {
                self.values[id.index()] = None;
            }
        }
    }

    fn outputs(&mut self) -> Result<Outputs> {
        let mut outputs = Vec::with_capacity(self.graph.outputs().len());
        for &(kind, id) in self.graph.outputs() {
            load_constant(self.graph, &mut self.values, id);
            let name = &self.graph.value(id).name;
            let value = self.values[id.index()]
                .clone()
                .ok_or_else(|| Error::graph(name, "an output that no node computes"))?;
            let shape = value.shape().to_vec();
            let matrix = matrix(&shape, value.into_values()).map_err(|e| Error::graph(name, e))?;
            outputs.push((kind, matrix));
        }
        Ok(outputs)
    }
}

/// Runs all nodes of all ranks.
fn run(ranks: &mut [Values<'_>]) -> Result<()> {
    let Some(graph) = ranks.first().map(|rank| rank.graph) else {
        return Ok(());
    };
    for (index, first) in graph.nodes().iter().enumerate() {
        let mut nodes = Vec::with_capacity(ranks.len());
        for rank in ranks.iter() {
            let node = rank
                .graph
                .nodes()
                .get(index)
                .filter(|node| node.name == first.name);
            nodes.push(node.ok_or_else(|| Error::graph(&first.name, "is not in the graphs of all ranks"))?);
        }
        let operands = ranks
            .iter_mut()
            .zip(&nodes)
            .map(|(rank, node)| rank.operands(node));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let op = &first.op;
        // The ops of ranks differ in their share of the heads; the operands have it too.
        let results = if nodes.iter().all(|node| node.op == *op) {
            op.eval_ranks(&operands)
        } else {
            let each = operands.iter().zip(&nodes);
            each.map(|(operands, node)| node.op.eval(operands)).collect()
        };
        let results = results.map_err(|source| Error::op(&first.name, op, source))?;
        for (rank, result) in ranks.iter_mut().zip(results) {
            rank.keep(index, result);
        }
    }
    Ok(())
}

fn image(graph: &Graph, batch: usize, input: Input<'_>) -> Result<Array> {
    elements(graph, graph.first_input(), batch, input)
}

fn elements(graph: &Graph, of_graph: GraphInput, batch: usize, input: Input<'_>) -> Result<Array> {
    let values = match input {
        Input::Pixels(pixels) => pixels.iter().map(|&v| f64::from(v)).collect(),
        Input::Values(values) => values.iter().map(|&v| f64::from(v)).collect(),
        Input::Integers(values) => values.iter().map(|&v| f64::from(v)).collect(),
    };
    Array::new(graph.input_shape(of_graph, batch), values)
        .ok_or_else(|| Error::argument("input", "does not have the graph's shape"))
}

fn load_constant(graph: &Graph, values: &mut [Option<Array>], id: ValueId) {
    let slot = &mut values[id.index()];
    if slot.is_none() {
        let value = graph.value(id);
        *slot = value
            .constant
            .as_ref()
            .or(value.initial.as_ref())
            .map(Array::from);
    }
}
