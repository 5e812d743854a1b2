//! Computes nodes whose operands are all constant: class token + position, the queries of an attention pool. The reference
//! implementation computes chains of them in double precision; the result is rounded once.

use std::collections::{HashMap, HashSet};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::provenance::Provenance;
use crate::reference::{self, Array};
use crate::rewrite::{Rewritten, rewrite, sized};
use crate::tensor::Tensor;
use crate::value::ValueId;

/// Counts the nodes that became constants.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    let inner = inner(graph);
    let is_output = |result| graph.outputs().iter().any(|&(_, output)| output == result);
    let integers = integers(graph);
    let mut computed: HashMap<ValueId, (Array, Provenance)> = HashMap::new();
    rewrite(graph, |rewriter, node| {
        let is_known = |id: &ValueId| computed.contains_key(id) || rewriter.tensor(*id).is_some();
        // A constant takes the place of one result. A named output that does not depend on the inputs stays the result of a node.
        if node.outputs.len() > 1 || is_output(node.output()) || !node.inputs.iter().all(is_known) {
            return Ok(None);
        }
        for &id in &node.inputs {
            if let Some(tensor) = rewriter.tensor(id) {
                let known = || (Array::from(tensor), rewriter.provenance(id));
                computed.entry(id).or_insert_with(known);
            }
        }
        let operands = node.inputs.iter().filter_map(|id| computed.get(id));
        let (operands, of): (Vec<&Array>, Vec<Provenance>) =
            operands.map(|(array, of)| (array, of.clone())).unzip();
        let result =
            reference::eval(&node.op, &operands).map_err(|source| Error::op(&node.name, &node.op, source))?;
        let tensor = if integers.contains(&node.output()) {
            let values: Vec<i32> = result.values().iter().map(|&value| value as i32).collect();
            Tensor::from_i32(result.shape(), &values)
        } else {
            Tensor::from_f32(result.shape(), result.to_f32())
        };
        let tensor = sized(node, tensor)?;
        let provenance = Provenance::computed(&node.name, of);
        if inner.contains(&node.output()) {
            computed.insert(node.output(), (result, provenance.clone()));
        }
        Ok(Some(rewriter.constant(provenance, tensor)))
    })
}

/// Returns the values that are integers in any plan: constants, inputs, and results that ops compute or move.
fn integers(graph: &Graph) -> HashSet<ValueId> {
    let is_i32 = |id: &ValueId| graph.value(*id).dtype == DType::I32;
    let mut integers: HashSet<ValueId> = graph.ids().filter(is_i32).collect();
    for node in graph.nodes() {
        for (index, &id) in node.outputs.iter().enumerate() {
            let is_integer = match node.op.keeps_dtype_of().filter(|_| index == 0) {
                Some(operand) => node.inputs.get(operand).is_some_and(|id| integers.contains(id)),
                None => node.op.result_dtype(index, DType::F32) == DType::I32,
            };
            if is_integer {
                integers.insert(id);
            }
        }
    }
    integers
}

/// Returns the results of such nodes that others of them read. The last result of a chain, which may be a large bias of attention, is not
/// kept in double precision.
fn inner(graph: &Graph) -> HashSet<ValueId> {
    let (mut known, mut read) = (HashSet::new(), HashSet::new());
    for node in graph.nodes() {
        let is_known = |id: &ValueId| known.contains(id) || graph.value(*id).is_constant();
        if node.outputs.len() == 1 && node.inputs.iter().all(is_known) {
            read.extend(node.inputs.iter().copied());
            known.insert(node.output());
        }
    }
    &known & &read
}
