//! Runs a graph by the reference implementation of its ops, in double precision.

use ndarray::Array2;

use super::{Graph, OutputKind, ValueId, matrix};
use crate::error::{Error, Result};
use crate::reference::{Array, eval};
use crate::tensor::Input;

/// Runs `graph`, optimised or not, on `batch` images: each of its outputs as `[B, channels]`, or
/// `[B·tokens, channels]`.
///
/// # Errors
///
/// [`Error::Argument`] if `input` is not what the graph takes, [`Error::Graph`] if a node's operands do not fit it.
pub fn interpret(graph: &Graph, batch: usize, input: Input<'_>) -> Result<Vec<(OutputKind, Array2<f64>)>> {
    graph.check_input(input, batch)?;
    let mut last_use = vec![0; graph.values().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        for id in &node.inputs {
            last_use[id.index()] = index;
        }
    }
    for (_, id) in graph.outputs() {
        last_use[id.index()] = usize::MAX;
    }

    let mut values: Vec<Option<Array>> = vec![None; graph.values().len()];
    values[graph.input().index()] = Some(image(graph, batch, input)?);
    for (index, node) in graph.nodes().iter().enumerate() {
        for &id in &node.inputs {
            load_constant(graph, &mut values, id);
        }
        let operands: Option<Vec<&Array>> =
            node.inputs.iter().map(|id| values[id.index()].as_ref()).collect();
        let operands = operands.ok_or_else(|| {
            Error::graph(
                &node.name,
                "an operand is computed only later, or is a constant that was released",
            )
        })?;
        let result = eval(&node.op, &operands).map_err(|reason| Error::graph(&node.name, reason))?;
        values[node.output.index()] = Some(result);
        for id in &node.inputs {
            if last_use[id.index()] == index {
                values[id.index()] = None;
            }
        }
    }

    let mut outputs = Vec::with_capacity(graph.outputs().len());
    for &(kind, id) in graph.outputs() {
        load_constant(graph, &mut values, id);
        let name = &graph.value(id).name;
        let value = values[id.index()]
            .clone()
            .ok_or_else(|| Error::graph(name, "an output that no node computes"))?;
        let shape = value.shape().to_vec();
        let matrix = matrix(&shape, value.into_values()).map_err(|e| Error::graph(name, e))?;
        outputs.push((kind, matrix));
    }
    Ok(outputs)
}

fn image(graph: &Graph, batch: usize, input: Input<'_>) -> Result<Array> {
    let mut shape = graph.value(graph.input()).shape.clone();
    shape[0] = batch;
    let values = match input {
        Input::Pixels(pixels) => pixels.iter().map(|&v| f64::from(v)).collect(),
        Input::Values(values) => values.iter().map(|&v| f64::from(v)).collect(),
    };
    Array::new(shape, values).ok_or_else(|| Error::argument("input", "does not have the graph's shape"))
}

fn load_constant(graph: &Graph, values: &mut [Option<Array>], id: ValueId) {
    let slot = &mut values[id.index()];
    if slot.is_none() {
        *slot = graph.value(id).constant.as_ref().map(Array::from);
    }
}
