//! Tokens before those of the patches, and the token that a classifier reads.

use hipvit_graph::op::{Concat, Expand, Op, Pool, Prepend, Reshape, Slice};
use hipvit_graph::{Graph, Node, Result, Rewriter, ValueId, rewrite};

/// Replaces concatenations with tokens that all images share, and selections of a token.
pub(super) fn run(graph: &Graph) -> Result<Graph> {
    let rewritten = rewrite(graph, |rewriter, node| match &node.op {
        Op::Concat(Concat { axis: 1 }) => prepended(rewriter, graph, node),
        Op::Reshape(reshape) => selected(rewriter, graph, node, reshape),
        _ => Ok(None),
    })?;
    Ok(rewritten.graph)
}

/// `[prefix [1, P, D] repeated for each image, …, x [B, N, D]]`.
fn prepended(rewriter: &mut Rewriter<'_>, graph: &Graph, node: &Node) -> Result<Option<ValueId>> {
    let Some((&x, prefixes)) = node.inputs.split_last() else {
        return Ok(None);
    };
    let is_table = |id: ValueId| graph.value(id).is_constant() && graph.value(id).shape.len() == 3;
    let shared = |&id: &ValueId| {
        if is_table(id) {
            return Some(id);
        }
        let expand = rewriter.producer(id)?;
        let of = *expand.inputs.first()?;
        let is_batch = matches!(&expand.op, Op::Expand(Expand { batch: Some(0), .. }));
        // At batch 1 nothing is repeated, so that only the batch is at others.
        let is_token = is_table(of) && graph.value(of).shape == graph.value(id).shape;
        (is_batch && is_token).then_some(of)
    };
    let Some(tokens) = prefixes.iter().map(shared).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    if tokens.is_empty() || graph.value(x).shape.len() != 3 || graph.value(x).is_constant() {
        return Ok(None);
    }
    let mut inputs = rewriter.map_all(&tokens);
    inputs.push(rewriter.map(x));
    rewriter.emit(node.role, &node.name, Prepend, inputs).map(Some)
}

/// The slice of one token of `[B, N, D]` as `[B, D]`.
fn selected(
    rewriter: &mut Rewriter<'_>,
    graph: &Graph,
    node: &Node,
    reshape: &Reshape,
) -> Result<Option<ValueId>> {
    let Some(slice) = rewriter.producer(node.inputs[0]) else {
        return Ok(None);
    };
    let Op::Slice(Slice {
        axis: 1,
        start,
        len: 1,
        ..
    }) = slice.op
    else {
        return Ok(None);
    };
    let tokens = slice.inputs[0];
    let &[1, _, channels] = &graph.value(tokens).shape[..] else {
        return Ok(None);
    };
    if reshape.extents != [1, channels] || reshape.batch != Some(0) {
        return Ok(None);
    }
    let x = rewriter.map(tokens);
    rewriter
        .emit(node.role, &node.name, Pool::Token(start), [x])
        .map(Some)
}
