//! Attention with its projections' biases, as ONNX Runtime's optimiser writes it.

use super::Group;
use super::attention::{Scores, heads, scaled_attention};
use super::elementwise::sum;
use super::layout::{permute, reshape_to};
use super::matmul::linear;
use super::parts::take_range;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::error::{Refusal, refuse};
use crate::value::{Value, show};

pub(super) const MICROSOFT: Group = &[
    ("Attention", packed_attention),
    ("MultiHeadAttention", multi_head_attention),
];

/// Refuses operands that are given, by their names.
fn refuse_operands(context: &Context<'_>, operands: &[(usize, &str)]) -> Result<(), Refusal> {
    match operands
        .iter()
        .find(|(index, _)| context.optional(*index).is_some())
    {
        Some((_, name)) => refuse!("has {name}, which is not supported"),
        None => Ok(()),
    }
}

/// Reads the attributes that both operators have. Returns the number of heads too.
fn attributes(context: &Context<'_>) -> Result<(usize, Scores), Refusal> {
    context.ignore(&["mask_filter_value", "past_present_share_buffer"]);
    let given = context.int_or("num_heads", 0);
    let Some(heads) = usize::try_from(given).ok().filter(|&heads| heads > 0) else {
        refuse!("has {given} heads");
    };
    if context.flag("do_rotary", false) {
        refuse!("rotates its queries, which is not supported");
    }
    if context.wants(1) {
        refuse!("has keys and values as outputs, which is not supported");
    }
    let scores = Scores {
        // ONNX Runtime takes 0 for the default.
        scale: context.float("scale").filter(|&scale| scale != 0.0),
        softcap: 0.0,
        is_causal: context.flag("unidirectional", false),
    };
    Ok((heads, scores))
}

/// Computes attention of queries, keys and values `[B, N, C]`, and returns `[B, N, C]`.
fn attention_of(
    builder: &mut Builder,
    operands: [Value; 3],
    count: usize,
    scores: Scores,
    bias: Option<Value>,
) -> Result<Value, Refusal> {
    let [q, k, v] = operands;
    let channels = v.dims.last().copied();
    let q = heads(builder, &q, Some(count))?;
    let k = heads(builder, &k, Some(count))?;
    let v = heads(builder, &v, Some(count))?;
    let y = scaled_attention(builder, [&q, &k, &v], scores, bias)?;
    let y = permute(builder, &y, &[0, 2, 1, 3])?;
    let Some(channels) = channels else {
        refuse!("has values without channels");
    };
    reshape_to(builder, &y, &[y.dims[0], y.dims[1], channels])
}

fn multi_head_attention(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    refuse_operands(
        context,
        &[(4, "a mask of keys"), (6, "past keys"), (7, "past values")],
    )?;
    let (count, scores) = attributes(context)?;
    let [q, k, v] = match [0, 1, 2].map(|index| context.optional(index)) {
        [Some(q), Some(k), Some(v)] => [q, k, v],
        _ => refuse!("has packed keys and values, which is not supported"),
    };
    if ![&q, &k, &v].iter().all(|operand| operand.rank() == 3) {
        refuse!(
            "takes [B, N, C], got {}, {} and {}",
            show(&q.dims),
            show(&k.dims),
            show(&v.dims)
        );
    }
    let (bias, of_scores) = (context.optional(3), context.optional(5));
    let builder = &mut *context.builder;
    let mut operands = [q, k, v];
    if let Some(bias) = bias {
        let mut start = 0;
        for operand in &mut operands {
            let Some(width) = operand.dims[2].fixed() else {
                refuse!("has channels that depend on the batch size");
            };
            let part = take_range(builder, &bias, 0, start, width)?;
            *operand = sum(builder, operand, &part)?;
            start += width;
        }
    }
    attention_of(builder, operands, count, scores, of_scores).map(|value| vec![value])
}

fn packed_attention(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    refuse_operands(context, &[(3, "a mask"), (4, "past keys"), (6, "past lengths")])?;
    let (count, scores) = attributes(context)?;
    let widths = context.ints("qkv_hidden_sizes").map(<[i64]>::to_vec);
    let [x, weight] = [context.input(0)?, context.input(1)?];
    let (bias, of_scores) = (context.optional(2), context.optional(5));
    let &[_, Dim::Fixed(width)] = &weight.dims[..] else {
        refuse!("has a weight {}", show(&weight.dims));
    };
    let widths = match widths {
        None if width % 3 == 0 => vec![width / 3; 3],
        Some(widths) => widths
            .iter()
            .map(|&width| usize::try_from(width).unwrap_or(0))
            .collect(),
        None => Vec::new(),
    };
    let is_whole = widths
        .iter()
        .try_fold(0usize, |sum, &width| sum.checked_add(width))
        == Some(width);
    if widths.len() != 3 || !is_whole || x.rank() != 3 {
        refuse!("divides {width} channels of {} into {widths:?}", show(&x.dims));
    }
    let builder = &mut *context.builder;
    let weight = permute(builder, &weight, &[1, 0])?;
    let packed = linear(builder, &x, &weight, bias.as_ref())?;
    let mut operands = Vec::with_capacity(3);
    let mut start = 0;
    for width in widths {
        operands.push(take_range(builder, &packed, 2, start, width)?);
        start += width;
    }
    let Ok(operands) = <[Value; 3]>::try_from(operands) else {
        refuse!("lacks queries, keys or values");
    };
    attention_of(builder, operands, count, scores, of_scores).map(|value| vec![value])
}
