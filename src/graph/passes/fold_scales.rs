//! Moves a factor on the channels of a Linear's result (LayerScale, or the mean of a distilled model's two heads) into
//! its weight and bias. Each scaled weight is rounded once to f32.

use std::borrow::Cow;

use crate::error::Result;
use crate::graph::rewrite::{PlainLinear, Rewriter, Rewritten, rewrite, sized};
use crate::graph::{Graph, ValueId};
use crate::ops::Op;
use crate::tensor::Tensor;

/// What the result is multiplied by, and a name for it.
struct Factor<'a> {
    of_channel: Cow<'a, [f32]>,
    name: String,
}

/// Counts the factors that went into weights.
pub(in crate::graph) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let x = node.inputs[0];
        let factor = match node.op {
            Op::Scale => match rewriter.tensor(node.inputs[1]) {
                Some(gamma) => Factor {
                    of_channel: gamma.to_f32(),
                    name: rewriter.name(node.inputs[1]).to_owned(),
                },
                None => return Ok(None),
            },
            Op::MulScalar(factor) => Factor {
                of_channel: vec![factor; graph.value(x).shape.last().copied().unwrap_or(0)].into(),
                name: factor.to_string(),
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

/// Whether the old value `id` is a Linear's, or a sum of such, that nothing else reads.
fn accepts(rewriter: &Rewriter<'_>, id: ValueId) -> bool {
    rewriter.plain_linear(id).is_some()
        || rewriter.sole_producer(id).is_some_and(|node| {
            node.op == Op::Add && node.inputs.iter().all(|&operand| accepts(rewriter, operand))
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
    rewriter.emit(role, name, Op::Add, operands)
}

fn scaled_linear(
    rewriter: &mut Rewriter<'_>,
    linear: PlainLinear<'_>,
    factor: &Factor<'_>,
) -> Result<ValueId> {
    let node = linear.node;
    let named = |id| format!("{} · {}", rewriter.name(id), factor.name);
    let times_factor = |tensor: &Tensor| sized(node, tensor.scale_rows(&factor.of_channel));
    let weight = (named(node.inputs[1]), times_factor(linear.weight)?);
    let bias = match linear.bias {
        Some(bias) => Some((named(node.inputs[2]), times_factor(bias)?)),
        None => None,
    };
    let x = rewriter.map(linear.x());
    rewriter.emit_linear(node.role, &node.name, x, weight, bias, linear.int8)
}
