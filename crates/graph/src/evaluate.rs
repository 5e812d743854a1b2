//! Evaluation of selected values of a graph by the reference implementation.

use crate::array::{Array, Real};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::value::ValueId;

/// Computes the values `wanted` and the values that they depend on, starting from the values in `known`. Constants and initial parameters
/// that are not known are read from the graph.
///
/// Returns the wanted values that were computed, by [`ValueId::index`]. All other values are dropped after their last use.
///
/// # Errors
///
/// [`Error::Graph`] if an operand is neither known nor computed, or is a released constant. [`Error::Op`] if an op rejects its operands.
pub fn evaluate<'a, T: Real>(
    graph: &Graph,
    known: impl Fn(ValueId) -> Option<&'a Array<T>>,
    wanted: &[ValueId],
) -> Result<Vec<Option<Array<T>>>> {
    let mut keep = vec![false; graph.values().len()];
    wanted.iter().for_each(|id| keep[id.index()] = true);
    let mut needed = keep.clone();
    let mut last_use = vec![None; needed.len()];
    let mut runs = vec![false; graph.nodes().len()];
    for (index, node) in graph.nodes().iter().enumerate().rev() {
        runs[index] = node
            .outputs
            .iter()
            .any(|&id| needed[id.index()] && known(id).is_none());
        if runs[index] {
            for id in &node.inputs {
                needed[id.index()] = true;
                last_use[id.index()].get_or_insert(index);
            }
        }
    }
    let mut values: Vec<Option<Array<T>>> = vec![None; needed.len()];
    for (index, node) in graph.nodes().iter().enumerate().filter(|(index, _)| runs[*index]) {
        load_constants(graph, node, &known, &mut values);
        let operand = |id: &ValueId| known(*id).or(values[id.index()].as_ref());
        let operands: Option<Vec<&Array<T>>> = node.inputs.iter().map(operand).collect();
        let reason = "an operand is computed only later, or is a constant that was released";
        let operands = operands.ok_or_else(|| Error::graph(&node.name, reason))?;
        let results = node.op.eval(&operands);
        let results = results.map_err(|source| Error::op(&node.name, &node.op, source))?;
        for (id, result) in node.outputs.iter().zip(results) {
            values[id.index()] = needed[id.index()].then_some(result);
        }
        for id in &node.inputs {
            if last_use[id.index()] == Some(index) && !keep[id.index()] {
                values[id.index()] = None;
            }
        }
    }
    Ok(values)
}

/// Loads the constants and initial parameters among the unknown operands of `node`.
fn load_constants<'a, T: Real>(
    graph: &Graph,
    node: &Node,
    known: &impl Fn(ValueId) -> Option<&'a Array<T>>,
    values: &mut [Option<Array<T>>],
) {
    for &id in &node.inputs {
        let slot = &mut values[id.index()];
        if slot.is_none() && known(id).is_none() {
            let value = graph.value(id);
            *slot = value
                .constant
                .as_ref()
                .or(value.initial.as_ref())
                .map(Array::from);
        }
    }
}
