//! Attention and rotary embeddings of opset 23 and later, as products of matrices. Recognition makes one op of them where it can.

use hipvit_graph::Provenance;
use hipvit_graph::op::{BatchMatMul, Gather, Softmax};
use hipvit_graph::pattern::{Float, floats};
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::elementwise::{apply, product, sum};
use super::layout::{dims, expand_dims, permute, reshape_to};
use super::parts::{join, take_range};
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Value, show};

pub(super) const OPS: Group = &[("Attention", attention), ("RotaryEmbedding", rotary_embedding)];

/// Splits rows `[B, N, C]` into heads `[B, heads, N, D]`. Tensors of four axes are heads already.
fn heads(builder: &mut Builder, x: &Value, count: i64) -> Result<Value, Refusal> {
    match x.dims[..] {
        [_, _, _, _] => Ok(x.clone()),
        [b, n, c] => {
            let Some(width) = Linear::from(c)
                .checked_div(Linear::new(count))
                .filter(|_| count > 0)
            else {
                refuse!("divides {} channels among {count} heads", c.at_one());
            };
            let split = dims(&[b.into(), n.into(), Linear::new(count), width])?;
            let x = reshape_to(builder, x, &split)?;
            permute(builder, &x, &[0, 2, 1, 3])
        }
        _ => refuse!("takes [B, N, C] or [B, heads, N, D], got {}", show(&x.dims)),
    }
}

/// Joins heads to rows `[B, N, C]`.
fn rows(builder: &mut Builder, x: &Value) -> Result<Value, Refusal> {
    let x = permute(builder, x, &[0, 2, 1, 3])?;
    let channels = super::constant::product([x.dims[2].into(), x.dims[3].into()])?;
    let joined = dims(&[x.dims[0].into(), x.dims[1].into(), channels])?;
    reshape_to(builder, &x, &joined)
}

/// Repeats the heads of keys or values for as many heads of queries.
fn repeated(builder: &mut Builder, x: &Value, heads: Dim) -> Result<Value, Refusal> {
    let &[b, own, n, d] = &x.dims[..] else {
        refuse!("takes heads, got {}", show(&x.dims));
    };
    if own == heads {
        return Ok(x.clone());
    }
    let (Some(all), Some(count)) = (heads.fixed(), own.fixed().filter(|&count| count > 0)) else {
        refuse!("has a number of heads that depends on the batch size");
    };
    if all % count != 0 {
        refuse!("has {all} heads of queries and {count} of keys");
    }
    let x = reshape_to(builder, x, &[b, own, Dim::Fixed(1), n, d])?;
    let x = expand_dims(builder, &x, &[b, own, Dim::Fixed(all / count), n, d])?;
    reshape_to(builder, &x, &[b, heads, n, d])
}

/// Returns the mask that hides the keys after each query.
fn causal_mask(queries: Dim, keys: Dim) -> Result<Value, Refusal> {
    let (Some(queries), Some(keys)) = (queries.fixed(), keys.fixed()) else {
        refuse!("has a number of tokens that depends on the batch size");
    };
    let hidden = |index: usize| {
        if index % keys > index / keys {
            f32::NEG_INFINITY
        } else {
            0.0
        }
    };
    let len = crate::value::count(&[queries, keys])?;
    if len > crate::value::MOST_FLOATS {
        refuse!("has {queries} queries of {keys} keys, which is too many");
    }
    let mask: Vec<f32> = (0..len).map(hidden).collect();
    let mask = Tensor::from_f32([queries, keys], mask).ok_or("does not fit its shape")?;
    Ok(Value::constant(
        ElementType::F32,
        mask,
        Provenance::computed("causal mask", []),
    ))
}

fn attention(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [q, k, v] = [context.input(0)?, context.input(1)?, context.input(2)?];
    let mask = context.optional(3);
    let [of_q, of_kv] = [
        context.int_or("q_num_heads", 0),
        context.int_or("kv_num_heads", 0),
    ];
    let scale = context.float("scale");
    let softcap = context.float_or("softcap", 0.0);
    let causal = context.flag("is_causal", false);
    context.ignore(&["softmax_precision", "qk_matmul_output_mode"]);
    if (4..7).any(|index| context.optional(index).is_some()) || (1..4).any(|index| context.wants(index)) {
        refuse!("keeps keys and values of earlier calls, which is not supported");
    }
    let is_rows = q.rank() == 3;
    let builder = &mut *context.builder;
    let q = heads(builder, &q, of_q)?;
    let count = q.dims[1];
    let [k, v] = [k, v].map(|x| {
        let x = heads(builder, &x, of_kv)?;
        repeated(builder, &x, count)
    });
    let (k, v) = (k?, v?);
    let Some(width) = q.dims[3].fixed().filter(|&width| width > 0) else {
        refuse!("takes heads, got {}", show(&q.dims));
    };
    let by_transposed = BatchMatMul {
        transpose_b: true,
        ..BatchMatMul::default()
    };
    let scores = builder.apply(by_transposed, &[&q, &k])?;
    let scale = scale.unwrap_or(1.0 / (width as f32).sqrt());
    let mut scores = product(builder, &scores, &Value::scalar(ElementType::F32, scale))?;
    if causal {
        let mask = causal_mask(q.dims[2], k.dims[2])?;
        scores = sum(builder, &scores, &mask)?;
    }
    if let Some(mask) = mask {
        scores = masked(builder, &scores, mask)?;
    }
    if softcap != 0.0 {
        let capped = (floats::operand(0) / softcap).tanh() * softcap;
        scores = apply(builder, capped, &[&scores], ElementType::F32)?;
    }
    let weights = builder.apply(Softmax::default(), &[&scores])?;
    let result = builder.apply(BatchMatMul::default(), &[&weights, &v])?;
    if is_rows {
        return rows(builder, &result).map(|value| vec![value]);
    }
    Ok(vec![result])
}

/// Adds a mask, or hides the keys for which it is false.
fn masked(builder: &mut Builder, scores: &Value, mask: Value) -> Result<Value, Refusal> {
    if mask.element != ElementType::Bool {
        return sum(builder, scores, &mask);
    }
    let hidden = Float::select(&floats::operand(0).to_bool(), 0.0, f32::NEG_INFINITY);
    let mask = apply(builder, hidden, &[&mask], ElementType::F32)?;
    sum(builder, scores, &mask)
}

fn rotary_embedding(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let caches = [context.input(1)?, context.input(2)?];
    let positions = context.optional(3);
    let interleaved = context.flag("interleaved", false);
    let given = context.int_or("rotary_embedding_dim", 0);
    let count = context.int_or("num_heads", 0);
    let is_rows = x.rank() == 3;
    let builder = &mut *context.builder;
    let x = heads(builder, &x, count)?;
    let Some(width) = x.dims[3].fixed() else {
        refuse!("takes heads, got {}", show(&x.dims));
    };
    let rotated = if given == 0 {
        width
    } else {
        usize::try_from(given).unwrap_or(usize::MAX)
    };
    if rotated > width || rotated % 2 != 0 || rotated == 0 {
        refuse!("rotates {rotated} of {width} channels");
    }
    let [cos, sin] = caches.map(|cache| {
        let of_tokens = match &positions {
            Some(positions) => builder.apply(Gather { axis: 0 }, &[&cache, positions])?,
            None => cache,
        };
        let &[b, n, d] = &of_tokens.dims[..] else {
            refuse!("has a cache of shape {}", show(&of_tokens.dims));
        };
        reshape_to(builder, &of_tokens, &[b, Dim::Fixed(1), n, d])
    });
    let (cos, sin) = (cos?, sin?);
    let half = rotated / 2;
    let turned = take_range(builder, &x, 3, 0, rotated)?;
    // Pairs are neighbours, or half of the channels apart.
    let outer = x.dims[..3].to_vec();
    let pairs = if interleaved { [half, 2] } else { [2, half] }.map(Dim::Fixed);
    let axis = if interleaved { 4 } else { 3 };
    let split = reshape_to(builder, &turned, &[&outer[..], &pairs].concat())?;
    let mut parts = Vec::with_capacity(2);
    for index in 0..2 {
        let part = take_range(builder, &split, axis, index, 1)?;
        parts.push(reshape_to(
            builder,
            &part,
            &[&outer[..], &[Dim::Fixed(half)]].concat(),
        )?);
    }
    let operand = floats::operand;
    let real = operand(0) * operand(2) - operand(1) * operand(3);
    let imaginary = operand(0) * operand(3) + operand(1) * operand(2);
    let operands = [&parts[0], &parts[1], &cos, &sin];
    let mut results = Vec::with_capacity(2);
    for expression in [real, imaginary] {
        let part = apply(builder, expression, &operands, x.element)?;
        let mut dims = [&outer[..], &pairs].concat();
        dims[axis] = Dim::Fixed(1);
        results.push(reshape_to(builder, &part, &dims)?);
    }
    let joined = join(builder, &results, axis)?;
    let mut all = vec![reshape_to(
        builder,
        &joined,
        &[&outer[..], &[Dim::Fixed(rotated)]].concat(),
    )?];
    if rotated < width {
        all.push(take_range(builder, &x, 3, rotated, width - rotated)?);
    }
    let result = join(builder, &all, 3)?;
    if is_rows {
        return rows(builder, &result).map(|value| vec![value]);
    }
    Ok(vec![result])
}
