//! Moves a factor on the channels of a Linear's result (LayerScale, or the mean of a distilled model's two heads) into
//! its weight and bias, and a scale of the transposed into the transposition. Moves an affine map of the channels that a Linear
//! alone reads into that Linear: `W·(a·x + b) + c = (W·diag a)·x + (W·b + c)`. Each weight is rounded once to f32.

use std::borrow::Cow;

use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::op::{Add, Affine, Float8Scale, MulScalar, Op, Rounding, Scale, Transpose};
use crate::provenance::{Change, Provenance};
use crate::rewrite::{PlainLinear, Rewriter, Rewritten, rewrite, sized};
use crate::tensor::Tensor;
use crate::value::ValueId;

/// What the result is multiplied by.
struct Factor<'a> {
    of_channel: Cow<'a, [f32]>,
    provenance: Provenance,
}

/// Counts the factors that went into weights.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let mut x = node.inputs[0];
        let factor = match node.op {
            Op::Linear(_) => return absorb_affine(rewriter, graph, node),
            Op::Scale(Scale) if transposition(rewriter, x).is_some() => {
                return scaled_transposition(rewriter, node);
            }
            Op::Scale(Scale) => match rewriter.tensor(node.inputs[1]) {
                Some(gamma) => Factor {
                    of_channel: gamma.to_f32(),
                    provenance: rewriter.provenance(node.inputs[1]),
                },
                None => return Ok(None),
            },
            Op::MulScalar(MulScalar(factor)) => Factor {
                of_channel: vec![factor; graph.value(x).shape.last().copied().unwrap_or(0)].into(),
                provenance: Provenance::Number(factor),
            },
            Op::Elementwise(_) => match row_factor(rewriter, graph, node) {
                Some((other, factor)) => {
                    x = other;
                    factor
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        if accepts(rewriter, x) {
            scaled(rewriter, x, &factor).map(Some)
        } else {
            Ok(None)
        }
    })
}

/// Returns the operand of a product with a constant that has a factor for each channel, and these factors.
fn row_factor<'a>(rewriter: &Rewriter<'a>, graph: &Graph, node: &Node) -> Option<(ValueId, Factor<'a>)> {
    let Op::Elementwise(op) = &node.op else {
        return None;
    };
    let is_float = !op.is_integer() && op.integer_operands() == [false; 2];
    let &[first, second] = node.inputs.as_slice() else {
        return None;
    };
    if !op.formula().is_product() || !is_float {
        return None;
    }
    let shape = |id: ValueId| graph.value(id).shape.as_slice();
    for (x, gamma) in [(first, second), (second, first)] {
        let (Some(tensor), Some((channels, outer))) = (rewriter.tensor(gamma), shape(gamma).split_last())
        else {
            continue;
        };
        let is_row = outer.iter().all(|&extent| extent == 1) && outer.len() < shape(x).len();
        if is_row && shape(x).last() == Some(channels) {
            let factor = Factor {
                of_channel: tensor.to_f32(),
                provenance: rewriter.provenance(gamma),
            };
            return Some((x, factor));
        }
    }
    None
}

/// The transposition of nothing else that computes the old value `id`, if nothing else reads it.
fn transposition<'a>(rewriter: &Rewriter<'a>, id: ValueId) -> Option<&'a Node> {
    rewriter
        .sole_producer(id)
        .filter(|node| node.op == Op::Transpose(Transpose::default()))
}

fn scaled_transposition(rewriter: &mut Rewriter<'_>, scale: &Node) -> Result<Option<ValueId>> {
    let Some(node) = transposition(rewriter, scale.inputs[0]) else {
        return Ok(None);
    };
    let inputs = rewriter.map_all(&[node.inputs[0], scale.inputs[1]]);
    let op = Op::Transpose(Transpose {
        scale: true,
        ..Transpose::default()
    });
    rewriter.emit(node.role, &node.name, op, inputs).map(Some)
}

/// `node`, a Linear, with the affine map before it.
fn absorb_affine(rewriter: &mut Rewriter<'_>, graph: &Graph, node: &Node) -> Result<Option<ValueId>> {
    let linear = PlainLinear::of(graph, node).filter(|linear| !linear.is_in_8_bits());
    let affine = rewriter.sole_producer(node.inputs[0]);
    let (Some(linear), Some(affine)) = (linear, affine.filter(|affine| affine.op == Op::Affine(Affine)))
    else {
        return Ok(None);
    };
    let [factor, shift] = [1, 2].map(|i| rewriter.tensor(affine.inputs[i]).map(Tensor::to_f32));
    let (Some(factor), Some(shift)) = (factor, shift) else {
        return Ok(None);
    };
    let stored = linear.weight.to_f32();
    let mut weight = Vec::with_capacity(stored.len());
    let mut bias = Vec::with_capacity(stored.len() / factor.len().max(1));
    for row in stored.chunks(factor.len().max(1)) {
        weight.extend(row.iter().zip(&*factor).map(|(w, factor)| w * factor));
        let products = row.iter().zip(&*shift);
        bias.push(
            products
                .map(|(&w, &shift)| f64::from(w) * f64::from(shift))
                .sum::<f64>(),
        );
    }
    if let Some(stored) = linear.bias {
        let stored = stored.to_f32();
        bias.iter_mut()
            .zip(&*stored)
            .for_each(|(sum, &b)| *sum += f64::from(b));
    }
    let bias: Vec<f32> = bias.into_iter().map(|v| v as f32).collect();
    let weight = sized(node, Tensor::from_f32(linear.weight.shape(), weight))?;
    let bias = sized(node, Tensor::from_f32([bias.len()], bias))?;
    let provenances = [1, 2].map(|i| rewriter.provenance(affine.inputs[i]));
    let scaled = |of: Provenance| {
        let affine = Provenance::computed(&affine.name, provenances.clone());
        of.then(Change::Scaled(Box::new(affine)))
    };
    let weight = (scaled(rewriter.provenance(node.inputs[1])), weight);
    let of_bias: Vec<_> = node.inputs[2..]
        .iter()
        .map(|&id| rewriter.provenance(id))
        .collect();
    let of_bias = Provenance::computed(format!("{}.bias", node.name), of_bias);
    let bias = (scaled(of_bias), bias);
    let x = rewriter.map(affine.inputs[0]);
    rewriter
        .emit_linear(node.role, &node.name, x, weight, Some(bias), linear.rounding)
        .map(Some)
}

/// Whether the old value `id` is a Linear's, or a sum of such, that nothing else reads. A weight in FP8 keeps one scale for all
/// its rows where x has one, since a GPU multiplies by both.
fn accepts(rewriter: &Rewriter<'_>, id: ValueId) -> bool {
    let linear = rewriter.plain_linear(id);
    linear.is_some_and(|linear| !matches!(linear.rounding, Some(Rounding::Float8(Float8Scale::Fixed(_)))))
        || rewriter.sole_producer(id).is_some_and(|node| {
            node.op == Op::Add(Add) && node.inputs.iter().all(|&operand| accepts(rewriter, operand))
        })
}

/// The old value `id`, which [`accepts`], times `factor`.
fn scaled(rewriter: &mut Rewriter<'_>, id: ValueId, factor: &Factor<'_>) -> Result<ValueId> {
    if let Some(linear) = rewriter.plain_linear(id) {
        return scaled_linear(rewriter, linear, factor);
    }
    let (role, name, operands) = match rewriter.producer(id) {
        Some(node) => (node.role, &node.name, &node.inputs),
        None => return Ok(rewriter.map(id)),
    };
    let operands = operands
        .iter()
        .map(|&operand| scaled(rewriter, operand, factor))
        .collect::<Result<Vec<_>>>()?;
    rewriter.emit(role, name, Op::Add(Add), operands)
}

fn scaled_linear(
    rewriter: &mut Rewriter<'_>,
    linear: PlainLinear<'_>,
    factor: &Factor<'_>,
) -> Result<ValueId> {
    let node = linear.node;
    let scaled = |id| {
        let by = Box::new(factor.provenance.clone());
        rewriter.provenance(id).then(Change::Scaled(by))
    };
    let times_factor = |tensor: &Tensor| sized(node, tensor.scale_rows(&factor.of_channel));
    let weight = (scaled(node.inputs[1]), times_factor(linear.weight)?);
    let bias = match linear.bias {
        Some(bias) => Some((scaled(node.inputs[2]), times_factor(bias)?)),
        None => None,
    };
    let x = rewriter.map(linear.x());
    rewriter.emit_linear(node.role, &node.name, x, weight, bias, linear.rounding)
}
