//! Which linear layers are rounded.

use hipvit::graph::{Graph, Node};
use hipvit::ops::{Linear, Op};

/// Returns true for a layer that `hipvit quantize` rounds: it is in a block, and its weight is a tensor or rows of several.
pub(crate) fn is_rounded(graph: &Graph, node: &Node) -> bool {
    let Op::Linear(Linear {
        activation: None,
        residual: false,
        rounding: None,
        ..
    }) = node.op
    else {
        return false;
    };
    let tensors = graph.value(node.inputs[1]).tensors();
    let is_whole = !tensors.is_empty() && tensors.iter().all(|name| name.ends_with(".weight"));
    node.block().is_some() && is_whole
}
