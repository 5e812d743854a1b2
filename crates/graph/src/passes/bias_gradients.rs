//! Computes the gradient of a bias, which is the sum of the columns of a value, beside that value, where its op can. Otherwise with the product
//! that is the gradient of the weight: libraries sum the columns of an operand beside a GEMM.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{ActivationBackward, LayerNormBackward, MatMul, Op};
use crate::rewrite::{Rewritten, rewrite};
use crate::value::ValueId;

/// Counts the sums that became part of another op.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    let sums = sums(graph);
    let mut computed = HashMap::new();
    rewrite(graph, |rewriter, node| {
        if let Some(&sum) = computed.get(&node.output()) {
            return Ok(Some(sum));
        }
        let Some((op, sums)) = summing(graph, node).and_then(|(value, op)| Some((op, sums.get(&value)?)))
        else {
            return Ok(None);
        };
        if sums.iter().any(|sum| computed.contains_key(sum)) {
            return Ok(None);
        }
        let inputs = rewriter.map_all(&node.inputs);
        let results = rewriter.emit_node(node.role, &node.name, op, inputs)?;
        let added = results[node.outputs.len()];
        computed.extend(sums.iter().map(|&sum| (sum, added)));
        Ok(Some(results[0]))
    })
}

/// Returns the value whose columns the op of a node could sum, and the op with the sums as its last result.
fn summing(graph: &Graph, node: &Node) -> Option<(ValueId, Op)> {
    let channels = |id: ValueId| graph.value(id).shape.last();
    match node.op {
        Op::ActivationBackward(op @ ActivationBackward { sums: false, .. }) => {
            Some((node.output(), ActivationBackward { sums: true, ..op }.into()))
        }
        Op::LayerNormBackward(op @ LayerNormBackward { sums: false, .. })
            if channels(node.inputs[1]) == channels(node.output()) =>
        {
            Some((node.output(), LayerNormBackward { sums: true, ..op }.into()))
        }
        Op::MatMul(MatMul {
            transpose_a: true,
            column_sums: false,
        }) => {
            let op = MatMul {
                transpose_a: true,
                column_sums: true,
            };
            Some((node.inputs[0], op.into()))
        }
        _ => None,
    }
}

/// Returns the sums of the columns of each value that an op could compute. There are several if layers add up to one result, which have the same
/// gradient.
fn sums(graph: &Graph) -> HashMap<ValueId, Vec<ValueId>> {
    let mut known = HashSet::new();
    let mut sums: HashMap<_, Vec<ValueId>> = HashMap::new();
    for node in graph.nodes() {
        // Only an op before this node can compute the sum.
        known.extend(summing(graph, node).map(|(value, _)| value));
        let Op::SumToSize(op) = &node.op else {
            continue;
        };
        let x = node.inputs[0];
        let columns = graph.value(x).shape.last().copied();
        if known.contains(&x) && columns.is_some_and(|columns| op.shape == [columns]) {
            sums.entry(x).or_default().push(node.output());
        }
    }
    sums
}
