//! Fuses prefix tokens, position embeddings and patch tokens into one step, [`Op::Tokens`]. Position embeddings of prefix
//! tokens are added to them here, once.

use crate::error::Result;
use crate::op::{Add, Op, Prepend, Tokens};
use crate::rewrite::{Rewriter, Rewritten, rewrite, sized};
use crate::tensor::Tensor;
use crate::{Change, Graph, Node, Provenance, ValueId};

/// Rows of tokens or positions `[N,D]`, and the constants that they come from.
struct Table {
    rows: Tensor,
    of: Vec<Provenance>,
}

/// Counts the fused token assemblies.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| match node.op {
        // `Prepend`, then positions for all tokens.
        Op::Add(Add) => match rewriter.sole_producer(node.inputs[0]) {
            Some(prepend) if prepend.op == Op::Prepend(Prepend) => {
                let Some((prefix, x)) = prefix(rewriter, prepend)? else {
                    return Ok(None);
                };
                let Some(position) = position(rewriter, graph, node) else {
                    return Ok(None);
                };
                let count = prefix.rows.shape()[0];
                let of_prefix = sized(node, position.rows.rows(0..count))?;
                let of_patches = count..position.rows.shape()[0];
                let added = position
                    .of
                    .iter()
                    .cloned()
                    .map(|of| of.then(Change::Rows(0..count)));
                let prefix = Table {
                    rows: sized(node, sum(&prefix.rows, &of_prefix))?,
                    of: prefix.of.into_iter().chain(added).collect(),
                };
                let change = Change::Rows(of_patches.clone());
                let of = position.of.into_iter().map(|of| of.then(change.clone()));
                let position = Table {
                    of: of.collect(),
                    rows: sized(node, position.rows.rows(of_patches))?,
                };
                emit(rewriter, node, x, prefix, Some(position)).map(Some)
            }
            _ => Ok(None),
        },
        Op::Prepend(Prepend) => {
            let Some((prefix, x)) = prefix(rewriter, node)? else {
                return Ok(None);
            };
            // Positions for the patches alone, then `Prepend`.
            let positioned = rewriter.sole_producer(x).filter(|add| add.op == Op::Add(Add));
            match positioned.and_then(|add| Some((add.inputs[0], position(rewriter, graph, add)?))) {
                Some((x, position)) => emit(rewriter, node, x, prefix, Some(position)).map(Some),
                None if is_added_to(rewriter, graph, node) => Ok(None),
                None => emit(rewriter, node, x, prefix, None).map(Some),
            }
        }
        _ => Ok(None),
    })
}

/// All prefixes of a `Prepend` as one `[P,D]`, and what they go before; `None` if a prefix is not constant.
fn prefix(rewriter: &Rewriter<'_>, prepend: &Node) -> Result<Option<(Table, ValueId)>> {
    let Some((&x, prefixes)) = prepend.inputs.split_last() else {
        return Ok(None);
    };
    let Some(tensors) = prefixes
        .iter()
        .map(|&id| rewriter.tensor(id).map(rows))
        .collect::<Option<Vec<_>>>()
    else {
        return Ok(None);
    };
    let tensors = tensors
        .into_iter()
        .map(|tensor| sized(prepend, tensor))
        .collect::<Result<Vec<_>>>()?;
    let all = Tensor::concat_rows(&tensors.iter().collect::<Vec<_>>());
    // `Prepend` of nothing is no prefix.
    let of = prefixes.iter().map(|&id| rewriter.provenance(id)).collect();
    Ok(all.map(|rows| (Table { rows, of }, x)))
}

/// The position table `[N,D]` that `add` adds to its first operand of the form `[B,N,D]`, if it is constant.
fn position(rewriter: &Rewriter<'_>, graph: &Graph, add: &Node) -> Option<Table> {
    let table = rewriter.tensor(add.inputs[1])?;
    let fits = table.shape() == graph.value(add.inputs[0]).shape && table.shape().len() == 3;
    let rows = if fits { rows(table)? } else { return None };
    let of = vec![rewriter.provenance(add.inputs[1])];
    Some(Table { rows, of })
}

/// Whether the only reader of `prepend` is the `Add` of its positions, at which both are replaced.
fn is_added_to(rewriter: &Rewriter<'_>, graph: &Graph, prepend: &Node) -> bool {
    rewriter.sole_producer(prepend.output()).is_some()
        && graph.nodes().iter().any(|node| {
            node.op == Op::Add(Add)
                && node.inputs[0] == prepend.output()
                && position(rewriter, graph, node).is_some()
        })
}

/// `[1,N,D]` as `[N,D]`.
fn rows(tensor: &Tensor) -> Option<Tensor> {
    tensor.reshaped(tensor.shape().get(1..)?)
}

/// Each sum of two f32 values is rounded once.
fn sum(a: &Tensor, b: &Tensor) -> Option<Tensor> {
    let values: Vec<f32> = a
        .to_f32()
        .iter()
        .zip(b.to_f32().iter())
        .map(|(a, b)| a + b)
        .collect();
    Tensor::from_f32(a.shape(), values)
}

/// `Tokens` over the old value `x` in the place of `node`; the tables come as `[rows,D]`.
fn emit(
    rewriter: &mut Rewriter<'_>,
    node: &Node,
    x: ValueId,
    prefix: Table,
    position: Option<Table>,
) -> Result<ValueId> {
    let table = |suffix: &str, Table { rows, of }: Table| {
        let shape = [&[1], rows.shape()].concat();
        let provenance = Provenance::computed(format!("{}.{suffix}", node.name), of);
        Ok((provenance, sized(node, rows.reshaped(shape))?))
    };
    let op = Op::Tokens(Tokens {
        prefix: true,
        position: position.is_some(),
    });
    let prefix = table("prefix", prefix);
    let tables = std::iter::once(prefix).chain(position.map(|position| table("position", position)));
    let tables = tables.collect::<Result<Vec<_>>>()?;
    let mut inputs = vec![rewriter.map(x)];
    inputs.extend(tables.into_iter().map(|(of, table)| rewriter.constant(of, table)));
    rewriter.emit(node.role, &node.name, op, inputs)
}
