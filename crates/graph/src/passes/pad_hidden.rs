//! Pads the hidden channels of feed-forward networks to whole vectors: rows of 2,730 channels in 16 bits (EVA-02-L) begin at multiples
//! of 4 bytes only, and libraries have but slow GEMMs for such matrices.
//!
//! The first layer's weight and bias have zeros for as many outputs more, which every activation and gate maps to zero, and the second
//! layer's weight has zeros where it multiplies these.

use super::pad_tokens::VECTOR;
use crate::error::Result;
use crate::op::{Linear, Op, Rounding, SwiGlu, SwiGluNorm};
use crate::rewrite::{Rewriter, Rewritten, rewrite, sized};
use crate::tensor::Tensor;
use crate::{Change, Graph, Node, ValueId};

/// Counts the networks with more hidden channels.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Some(network) = Network::of(rewriter, node) else {
            return Ok(None);
        };
        let width = graph.value(node.inputs[0]).shape.last().copied().unwrap_or(0);
        let padded = width.next_multiple_of(VECTOR);
        if width <= VECTOR || padded == width {
            return Ok(None);
        }
        let first = network.first;
        let inputs = constants(rewriter, first, |tensor| network.more_outputs(tensor, padded))?;
        let mut y = rewriter.emit(first.role, &first.name, first.op.clone(), inputs)?;
        if let Some(between) = network.between {
            let op = match between.op {
                Op::SwiGluNorm(SwiGluNorm { epsilon, padding }) => Op::SwiGluNorm(SwiGluNorm {
                    epsilon,
                    padding: padding + padded - width,
                }),
                _ => between.op.clone(),
            };
            let mut inputs = constants(rewriter, between, |tensor| tensor.padded(&[padded]))?;
            inputs[0] = y;
            y = rewriter.emit(between.role, &between.name, op, inputs)?;
        }
        let mut inputs = rewriter.map_all(&node.inputs);
        inputs[0] = y;
        inputs[1] = padded_constant(rewriter, node, node.inputs[1], |tensor| {
            tensor.padded(&[tensor.shape()[0], padded])
        })?;
        rewriter
            .emit(node.role, &node.name, node.op.clone(), inputs)
            .map(Some)
    })
}

/// Two layers with weights that are not quantised; the second alone reads what the first computes, as it is or through a gate.
struct Network<'a> {
    first: &'a Node,
    between: Option<&'a Node>,
}

impl<'a> Network<'a> {
    fn of(rewriter: &Rewriter<'a>, second: &Node) -> Option<Self> {
        if !is_plain(rewriter, second) {
            return None;
        }
        let producer = rewriter.sole_producer(second.inputs[0])?;
        let (first, between) = match producer.op {
            Op::SwiGlu(SwiGlu) | Op::SwiGluNorm(_) | Op::Activation(_) => {
                (rewriter.sole_producer(producer.inputs[0])?, Some(producer))
            }
            _ => (producer, None),
        };
        let mut padded = first.inputs[1..]
            .iter()
            .chain(between.iter().flat_map(|node| &node.inputs[1..]));
        let constant = padded.all(|&id| rewriter.tensor(id).is_some());
        (is_plain(rewriter, first) && constant).then_some(Self { first, between })
    }

    /// Returns the first layer's weight or bias, padded with zeros to `padded` outputs in each half.
    fn more_outputs(&self, tensor: &Tensor, padded: usize) -> Option<Tensor> {
        let halves = match self.between.map(|between| &between.op) {
            Some(Op::SwiGlu(SwiGlu) | Op::SwiGluNorm(_)) => 2,
            _ => 1,
        };
        let (&rows, inner) = tensor.shape().split_first()?;
        let width: usize = inner.iter().product();
        let more = tensor
            .reshaped([halves, rows / halves * width])?
            .padded(&[halves, padded * width])?;
        let mut shape = tensor.shape().to_vec();
        shape[0] = halves * padded;
        more.reshaped(shape)
    }
}

fn is_plain(rewriter: &Rewriter<'_>, node: &Node) -> bool {
    let linear = match node.op {
        Op::Linear(Linear { rounding, .. }) => !rounding.is_some_and(Rounding::is_to_8_bits),
        _ => false,
    };
    let weight = node.inputs.get(1).and_then(|&id| rewriter.tensor(id));
    linear && weight.is_some_and(|weight| !weight.has_scales() && weight.shape().len() == 2)
}

/// The new operands of `node`, of which all but the first are constants that change.
fn constants(
    rewriter: &mut Rewriter<'_>,
    node: &Node,
    change: impl Fn(&Tensor) -> Option<Tensor>,
) -> Result<Vec<ValueId>> {
    let mut inputs = vec![rewriter.map(node.inputs[0])];
    for &id in &node.inputs[1..] {
        inputs.push(padded_constant(rewriter, node, id, &change)?);
    }
    Ok(inputs)
}

fn padded_constant(
    rewriter: &mut Rewriter<'_>,
    node: &Node,
    id: ValueId,
    change: impl Fn(&Tensor) -> Option<Tensor>,
) -> Result<ValueId> {
    let tensor = sized(node, rewriter.tensor(id).and_then(change))?;
    Ok(rewriter.constant(rewriter.provenance(id).then(Change::Padded), tensor))
}
