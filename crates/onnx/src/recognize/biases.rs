//! Biases that are added behind a linear layer, and factors for each channel.

use hipvit_graph::op::{Affine, Conv, Linear, Op, Scale};
use hipvit_graph::tensor::Tensor;
use hipvit_graph::{Change, Graph, Layout, Node, Provenance, Result, Rewriter, ValueId, rewrite};

use super::view::constant_sum;

/// Makes the constants that layers' results are added to the layers' biases, and folds affine maps into the layers before them.
pub(super) fn run(graph: &Graph) -> Result<Graph> {
    let rewritten = rewrite(graph, |rewriter, node| match &node.op {
        Op::Affine(Affine) => folded(rewriter, graph, node),
        Op::Add(_) | Op::Elementwise(_) => biased(rewriter, graph, node),
        _ => Ok(None),
    })?;
    let rewritten = rewrite(&rewritten.graph, |rewriter, node| {
        scaled(rewriter, &rewritten.graph, node)
    })?;
    Ok(rewritten.graph)
}

/// Returns the layer without a bias that alone computes the old value `id`, and the number of its channels.
fn plain_layer<'a>(rewriter: &Rewriter<'a>, graph: &Graph, id: ValueId) -> Option<(&'a Node, usize)> {
    let node = rewriter.sole_producer(id)?;
    let is_plain = match &node.op {
        Op::Linear(op) => !op.bias && op.activation.is_none() && !op.residual,
        Op::Conv(op) => !op.bias && op.activation.is_none() && !op.residual,
        _ => false,
    };
    let channels = *graph.value(id).shape.last()?;
    is_plain.then_some((node, channels))
}

/// Adds the constant operand of a sum to the layer before it.
fn biased(rewriter: &mut Rewriter<'_>, graph: &Graph, node: &Node) -> Result<Option<ValueId>> {
    let Some([x, bias]) = constant_sum(graph, node) else {
        return Ok(None);
    };
    let Some((layer, channels)) = plain_layer(rewriter, graph, x) else {
        return Ok(None);
    };
    let Some(vector) = vector(graph, bias, channels) else {
        return Ok(None);
    };
    let bias = match vector {
        Some((provenance, tensor)) => rewriter.constant(provenance, tensor),
        None => rewriter.map(bias),
    };
    let mut inputs = rewriter.map_all(&layer.inputs);
    inputs.push(bias);
    let op = match &layer.op {
        Op::Conv(op) => Op::Conv(Conv { bias: true, ..*op }),
        Op::Linear(op) => Op::Linear(Linear { bias: true, ..*op }),
        _ => return Ok(None),
    };
    rewriter.emit(layer.role, &layer.name, op, inputs).map(Some)
}

/// Returns the constant as a vector of all channels: `Some(None)` if it is one. `None` if it has other elements.
#[allow(
    clippy::option_option,
    reason = "the inner one is a change that is not needed"
)]
pub(super) fn vector(graph: &Graph, id: ValueId, channels: usize) -> Option<Option<(Provenance, Tensor)>> {
    let value = graph.value(id);
    let tensor = value.constant.as_ref()?;
    let (&last, outer) = tensor.shape().split_last()?;
    if last != channels || outer.iter().any(|&extent| extent != 1) {
        return None;
    }
    if outer.is_empty() {
        return Some(None);
    }
    let flat = tensor.reshaped([channels])?;
    let provenance = value.provenance.clone()?;
    Some(Some((provenance.then(Change::Layout(Layout::Flat)), flat)))
}

/// Multiplies the weight and the bias of the layer before an affine map of its channels.
fn folded(rewriter: &mut Rewriter<'_>, graph: &Graph, node: &Node) -> Result<Option<ValueId>> {
    let Some(layer) = rewriter.sole_producer(node.inputs[0]) else {
        return Ok(None);
    };
    let has_bias = match &layer.op {
        Op::Linear(op) if op.activation.is_none() && !op.residual && op.rounding.is_none() => op.bias,
        Op::Conv(op) if op.activation.is_none() && !op.residual => op.bias,
        _ => return Ok(None),
    };
    let tensor = |id: ValueId| graph.value(id).constant.as_ref();
    let (Some(factor), Some(offset), Some(weight)) = (
        tensor(node.inputs[1]),
        tensor(node.inputs[2]),
        tensor(layer.inputs[1]),
    ) else {
        return Ok(None);
    };
    let bias = if has_bias { tensor(layer.inputs[2]) } else { None };
    if has_bias && bias.is_none() {
        return Ok(None);
    }
    let (factors, offsets) = (factor.to_f32(), offset.to_f32());
    let values = weight.to_f32();
    let row = values.len() / factors.len().max(1);
    let scaled: Vec<f32> = values
        .chunks(row.max(1))
        .zip(factors.iter())
        .flat_map(|(row, factor)| row.iter().map(move |x| x * factor))
        .collect();
    let biases: Vec<f32> = match bias {
        Some(bias) => {
            let terms = bias.to_f32();
            let terms = terms.iter().zip(factors.iter()).zip(offsets.iter());
            terms
                .map(|((bias, factor), offset)| bias * factor + offset)
                .collect()
        }
        None => offsets.to_vec(),
    };
    let provenance = |id: ValueId| graph.value(id).provenance.clone();
    let (Some(of_weight), Some(of_factor), Some(of_offset)) = (
        provenance(layer.inputs[1]),
        provenance(node.inputs[1]),
        provenance(node.inputs[2]),
    ) else {
        return Ok(None);
    };
    let (Some(weight), Some(bias)) = (
        Tensor::from_f32(weight.shape(), scaled),
        Tensor::from_f32([biases.len()], biases),
    ) else {
        return Ok(None);
    };
    let of_weight = of_weight.then(Change::Scaled(Box::new(of_factor)));
    let weight = rewriter.constant(of_weight, weight);
    let bias = rewriter.constant(of_offset, bias);
    let x = rewriter.map(layer.inputs[0]);
    let op = match &layer.op {
        Op::Conv(op) => Op::Conv(Conv { bias: true, ..*op }),
        _ => Op::Linear(Linear {
            bias: true,
            ..Linear::default()
        }),
    };
    rewriter
        .emit(layer.role, &layer.name, op, [x, weight, bias])
        .map(Some)
}

/// Makes a product with a constant for each channel a scale.
fn scaled(rewriter: &mut Rewriter<'_>, graph: &Graph, node: &Node) -> Result<Option<ValueId>> {
    let operands = match (&node.op, &node.inputs[..]) {
        (Op::Elementwise(op), &[x, y]) if op.formula().to_string() == "mul(x0, x1)" => [x, y],
        (Op::Mul(_), &[x, y]) => [x, y],
        _ => return Ok(None),
    };
    for [x, gamma] in [operands, [operands[1], operands[0]]] {
        let value = graph.value(x);
        if value.is_constant() || !graph.value(gamma).is_constant() {
            continue;
        }
        let (Some(&channels), true) = (
            value.shape.last(),
            value.shape == graph.value(node.output()).shape,
        ) else {
            continue;
        };
        match vector(graph, gamma, channels) {
            Some(vector) => {
                let gamma = match vector {
                    Some((provenance, tensor)) => rewriter.constant(provenance, tensor),
                    None => rewriter.map(gamma),
                };
                let x = rewriter.map(x);
                return rewriter.emit(node.role, &node.name, Scale, [x, gamma]).map(Some);
            }
            None => continue,
        }
    }
    Ok(None)
}
