//! Computes nodes whose operands are all constant: class token + position, the queries of an attention pool. The reference
//! implementation computes chains of them in double precision; the result is rounded once.

use std::collections::{HashMap, HashSet};

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
        let tensor = sized(node, Tensor::from_f32(result.shape(), result.to_f32()))?;
        let provenance = Provenance::computed(&node.name, of);
        if inner.contains(&node.output()) {
            computed.insert(node.output(), (result, provenance.clone()));
        }
        Ok(Some(rewriter.constant(provenance, tensor)))
    })
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
