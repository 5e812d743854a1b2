//! Computes the gradient of a bias with the product that is the gradient of its weight: libraries sum the columns of an operand beside a GEMM.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{MatMul, Op};
use crate::rewrite::{Rewritten, rewrite};
use crate::value::ValueId;

/// Counts the sums that became part of a product.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    let sums = sums(graph);
    let mut computed = HashMap::new();
    rewrite(graph, |rewriter, node| {
        if let Some(&sum) = computed.get(&node.output()) {
            return Ok(Some(sum));
        }
        let Some(sums) = summed(node).and_then(|a| sums.get(&a)) else {
            return Ok(None);
        };
        if sums.iter().any(|sum| computed.contains_key(sum)) {
            return Ok(None);
        }
        let op = MatMul {
            transpose_a: true,
            column_sums: true,
        };
        let inputs = rewriter.map_all(&node.inputs);
        let results = rewriter.emit_node(node.role, &node.name, op, inputs)?;
        computed.extend(sums.iter().map(|&sum| (sum, results[1])));
        Ok(Some(results[0]))
    })
}

/// Returns the operand of a product whose columns it could sum.
fn summed(node: &Node) -> Option<ValueId> {
    match node.op {
        Op::MatMul(MatMul {
            transpose_a: true,
            column_sums: false,
        }) => Some(node.inputs[0]),
        _ => None,
    }
}

/// Returns the sums of the columns of each value that has some after a product. There are several if layers add up to one result, which have
/// the same gradient.
fn sums(graph: &Graph) -> HashMap<ValueId, Vec<ValueId>> {
    let mut multiplied = HashSet::new();
    let mut sums: HashMap<_, Vec<ValueId>> = HashMap::new();
    for node in graph.nodes() {
        multiplied.extend(summed(node));
        let Op::SumToSize(op) = &node.op else {
            continue;
        };
        let x = node.inputs[0];
        let columns = graph.value(x).shape.last().copied();
        if multiplied.contains(&x) && columns.is_some_and(|columns| op.shape == [columns]) {
            sums.entry(x).or_default().push(node.output());
        }
    }
    sums
}
