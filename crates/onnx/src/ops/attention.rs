//! Attention and rotary embeddings as products, sums and softmax, which recognition makes one op, and triangles of matrices.

use hipvit_graph::Provenance;
use hipvit_graph::op::reduce::ReduceKind;
use hipvit_graph::op::{Gather, Softmax};
use hipvit_graph::pattern::{Float, floats};
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::elementwise::{apply, product, sum};
use super::layout::{expand_dims, permute, reshape_to};
use super::matmul::multiply;
use super::parts::{join, take_range};
use super::reduce::reduce_axes;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Value, show};

pub(super) const OPS: Group = &[
    ("Attention", attention),
    ("RotaryEmbedding", rotary_embedding),
    ("Trilu", triangle),
];

/// Masks add this to scores that are not to count: far below all scores, and a number in half precision.
const MASKED: f32 = -1e4;

/// Swaps the second and the third of four axes: heads and tokens.
const SWAPPED: [usize; 4] = [0, 2, 1, 3];

/// Returns a number of heads that an attribute gives.
fn heads_of(context: &Context<'_>, name: &str) -> Result<Option<usize>, Refusal> {
    match context.int(name) {
        None | Some(0) => Ok(None),
        Some(heads) => match usize::try_from(heads) {
            Ok(heads) => Ok(Some(heads)),
            Err(_) => refuse!("has {name} {heads}"),
        },
    }
}

/// Divides the channels of tokens `[B, N, C]` into heads: `[B, N, heads, D]`.
fn divided(builder: &mut Builder, x: &Value, heads: Option<usize>) -> Result<Value, Refusal> {
    let (&[images, tokens, Dim::Fixed(channels)], Some(heads)) = (&x.dims[..], heads) else {
        refuse!(
            "takes [B, heads, N, D], or [B, N, C] and a number of heads, got {}",
            show(&x.dims)
        );
    };
    if channels % heads != 0 {
        refuse!("divides {channels} channels among {heads} heads");
    }
    let dims = [images, tokens, Dim::Fixed(heads), Dim::Fixed(channels / heads)];
    reshape_to(builder, x, &dims)
}

/// Returns queries, keys or values as `[B, heads, N, D]`.
pub(super) fn heads(builder: &mut Builder, x: &Value, heads: Option<usize>) -> Result<Value, Refusal> {
    if x.rank() == 4 {
        return Ok(x.clone());
    }
    let x = divided(builder, x, heads)?;
    permute(builder, &x, &SWAPPED)
}

/// Repeats each head of keys or values for the queries that share it.
fn shared(builder: &mut Builder, x: &Value, heads: Dim) -> Result<Value, Refusal> {
    let (&[images, Dim::Fixed(own), tokens, channels], Dim::Fixed(heads)) = (&x.dims[..], heads) else {
        refuse!("has keys or values {}", show(&x.dims));
    };
    if own == heads {
        return Ok(x.clone());
    }
    if own == 0 || !heads.is_multiple_of(own) {
        refuse!("shares {own} heads of keys among {heads} heads of queries");
    }
    let [own, times] = [own, heads / own].map(Dim::Fixed);
    let x = reshape_to(builder, x, &[images, own, Dim::Fixed(1), tokens, channels])?;
    let x = expand_dims(builder, &x, &[images, own, times, tokens, channels])?;
    reshape_to(builder, &x, &[images, Dim::Fixed(heads), tokens, channels])
}

/// Returns a matrix with a number for each row and column.
fn matrix([rows, columns]: [usize; 2], element: impl Fn(usize, usize) -> f32) -> Result<Value, Refusal> {
    let elements = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let elements: Vec<f32> = elements.map(|(row, column)| element(row, column)).collect();
    let tensor = Tensor::from_f32([rows, columns], elements).ok_or("is too large")?;
    Ok(Value::constant(
        ElementType::F32,
        tensor,
        Provenance::computed("triangle", []),
    ))
}

fn attention(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    context.ignore(&["softmax_precision", "qk_matmul_output_mode"]);
    for (index, name) in [(4, "past keys"), (5, "past values"), (6, "lengths of keys")] {
        if context.optional(index).is_some() {
            refuse!("has {name}, which are not supported");
        }
    }
    if (1..4).any(|index| context.wants(index)) {
        refuse!("has keys, values or scores as outputs, which is not supported");
    }
    let [q, k, v] = [context.input(0)?, context.input(1)?, context.input(2)?];
    let mask = context.optional(3);
    let [of_queries, of_keys] = [
        heads_of(context, "q_num_heads")?,
        heads_of(context, "kv_num_heads")?,
    ];
    let scale = context.float("scale");
    let softcap = context.float_or("softcap", 0.0);
    let is_causal = context.flag("is_causal", false);

    let scores = Scores {
        scale,
        softcap,
        is_causal,
    };
    let builder = &mut *context.builder;
    let has_heads = q.rank() == 4;
    let q = heads(builder, &q, of_queries)?;
    let k = heads(builder, &k, of_keys)?;
    let v = heads(builder, &v, of_keys)?;
    let y = scaled_attention(builder, [&q, &k, &v], scores, mask)?;
    if has_heads {
        return Ok(vec![y]);
    }
    let y = permute(builder, &y, &SWAPPED)?;
    let (Some(heads), Some(channels)) = (y.dims[2].fixed(), y.dims[3].fixed()) else {
        refuse!("has results {}", show(&y.dims));
    };
    reshape_to(builder, &y, &[y.dims[0], y.dims[1], Dim::Fixed(heads * channels)]).map(|value| vec![value])
}

/// How attention computes its scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scores {
    /// Factor of the scores. `None` for the reciprocal of the root of a head's channels.
    pub(super) scale: Option<f32>,
    /// Limit of the scores by tanh, or 0.
    pub(super) softcap: f32,
    /// True if queries see the keys up to their own index.
    pub(super) is_causal: bool,
}

/// Computes attention of queries, keys and values `[B, heads, N, D]`. The mask is added to the scores if it is not boolean.
pub(super) fn scaled_attention(
    builder: &mut Builder,
    [q, k, v]: [&Value; 3],
    options: Scores,
    mask: Option<Value>,
) -> Result<Value, Refusal> {
    let &[_, heads, queries, Dim::Fixed(channels)] = &q.dims[..] else {
        refuse!("has queries {}", show(&q.dims));
    };
    let [k, v] = [shared(builder, k, heads)?, shared(builder, v, heads)?];
    let scale = options.scale.unwrap_or(1.0 / (channels as f32).sqrt());
    let q = product(builder, q, &Value::scalar(q.element, scale))?;
    let columns = permute(builder, &k, &[0, 1, 3, 2])?;
    let mut scores = multiply(builder, &q, &columns)?;
    if options.softcap > 0.0 {
        let softcap = options.softcap;
        let capped = (floats::operand(0) * (1.0 / softcap)).tanh() * softcap;
        scores = apply(builder, capped, &[&scores], scores.element)?;
    }
    let mut bias: Option<Value> = None;
    let is_boolean = mask
        .as_ref()
        .is_some_and(|mask| mask.element == ElementType::Bool);
    if let Some(mask) = mask {
        if mask.dims.last() != k.dims.get(2) {
            refuse!(
                "has a mask {} for keys {}, which is not supported",
                show(&mask.dims),
                show(&k.dims)
            );
        }
        bias = Some(match mask.element {
            ElementType::Bool => {
                let bias = (floats::operand(0) * -1.0 + 1.0) * MASKED;
                apply(builder, bias, &[&mask], q.element)?
            }
            _ => mask,
        });
    }
    if options.is_causal {
        let [Some(rows), Some(columns)] = [queries.fixed(), k.dims[2].fixed()] else {
            refuse!("has a number of tokens that depends on the batch size");
        };
        let future = matrix(
            [rows, columns],
            |row, column| if column > row { MASKED } else { 0.0 },
        )?;
        bias = Some(match bias {
            Some(bias) => sum(builder, &bias, &future)?,
            None => future,
        });
    }
    if let Some(bias) = &bias {
        scores = sum(builder, &scores, bias)?;
    }
    let weights = builder.apply(Softmax { log: false }, &[&scores])?;
    let y = multiply(builder, &weights, &v)?;
    match bias.filter(|_| is_boolean) {
        Some(bias) => without_blind_queries(builder, &y, &bias),
        None => Ok(y),
    }
}

/// Sets the results of queries that see no key to zero. `bias` is what the masks add to the scores.
fn without_blind_queries(builder: &mut Builder, y: &Value, bias: &Value) -> Result<Value, Refusal> {
    let last = bias.rank() - 1;
    let most = reduce_axes(builder, bias, ReduceKind::Max, &[last], true)?;
    let sees = most
        .numbers()
        .map(|most| most.iter().all(|&most| most > f64::from(MASKED) / 2.0));
    if sees == Some(true) {
        return Ok(y.clone());
    }
    let kept = Float::select(&floats::operand(1).greater(MASKED / 2.0), floats::operand(0), 0.0);
    apply(builder, kept, &[y, &most], y.element)
}

fn rotary_embedding(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let caches = [context.input(1)?, context.input(2)?];
    let positions = context.optional(3);
    let is_interleaved = context.flag("interleaved", false);
    let rotated = heads_of(context, "rotary_embedding_dim")?;
    let heads = heads_of(context, "num_heads")?;

    let builder = &mut *context.builder;
    let tokens = match x.rank() {
        4 => permute(builder, &x, &SWAPPED)?,
        _ => divided(builder, &x, heads)?,
    };
    let &[images, length, heads, Dim::Fixed(channels)] = &tokens.dims[..] else {
        refuse!("rotates {}", show(&tokens.dims));
    };
    let rotated = rotated.unwrap_or(channels);
    if !rotated.is_multiple_of(2) || rotated > channels {
        refuse!("rotates {rotated} of {channels} channels");
    }
    let half = Dim::Fixed(rotated / 2);
    let mut of_tokens = Vec::with_capacity(2);
    for cache in caches {
        let cache = match &positions {
            Some(positions) => builder.apply(Gather { axis: 0 }, &[&cache, positions])?,
            None => cache,
        };
        let &[of_images, of_length, channels] = &cache.dims[..] else {
            refuse!("has a cache {} without positions", show(&cache.dims));
        };
        if channels != half {
            refuse!("has a cache {} for {rotated} channels", show(&cache.dims));
        }
        of_tokens.push(reshape_to(
            builder,
            &cache,
            &[of_images, of_length, Dim::Fixed(1), half],
        )?);
    }
    let [cos, sin] = [&of_tokens[0], &of_tokens[1]];

    let turned = take_range(builder, &tokens, 3, 0, rotated)?;
    let halves = if is_interleaved {
        let pairs = reshape_to(builder, &turned, &[images, length, heads, half, Dim::Fixed(2)])?;
        let mut halves = Vec::with_capacity(2);
        for index in 0..2 {
            let elements = take_range(builder, &pairs, 4, index, 1)?;
            halves.push(reshape_to(builder, &elements, &[images, length, heads, half])?);
        }
        halves
    } else {
        let first = take_range(builder, &turned, 3, 0, rotated / 2)?;
        let second = take_range(builder, &turned, 3, rotated / 2, rotated / 2)?;
        vec![first, second]
    };
    let operand = floats::operand;
    let operands = [&halves[0], &halves[1], cos, sin];
    let real = operand(0) * operand(2) - operand(1) * operand(3);
    let imaginary = operand(0) * operand(3) + operand(1) * operand(2);
    let real = apply(builder, real, &operands, x.element)?;
    let imaginary = apply(builder, imaginary, &operands, x.element)?;
    let turned = if is_interleaved {
        let dims = [images, length, heads, half, Dim::Fixed(1)];
        let parts = [
            reshape_to(builder, &real, &dims)?,
            reshape_to(builder, &imaginary, &dims)?,
        ];
        let pairs = join(builder, &parts, 4)?;
        reshape_to(builder, &pairs, &[images, length, heads, Dim::Fixed(rotated)])?
    } else {
        join(builder, &[real, imaginary], 3)?
    };
    let result = if rotated == channels {
        turned
    } else {
        let rest = take_range(builder, &tokens, 3, rotated, channels - rotated)?;
        join(builder, &[turned, rest], 3)?
    };
    let result = match x.rank() {
        4 => permute(builder, &result, &SWAPPED)?,
        _ => reshape_to(builder, &result, &x.dims)?,
    };
    Ok(vec![result])
}

/// Keeps the elements on one side of a diagonal, and sets the others to zero.
fn triangle(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let is_upper = context.flag("upper", true);
    let diagonal = match context.optional(1) {
        None => 0,
        Some(diagonal) => match diagonal.known_integers("a diagonal")?[..] {
            [diagonal] => diagonal,
            _ => refuse!("has several diagonals"),
        },
    };
    let &[.., rows, columns] = &x.dims[..] else {
        refuse!("takes matrices, got {}", show(&x.dims));
    };
    let [Some(rows), Some(columns)] = [rows.fixed(), columns.fixed()] else {
        refuse!("takes matrices {}, which grow with the batch", show(&x.dims));
    };
    let is_kept = |row: usize, column: usize| {
        let distance = column as i64 - row as i64;
        if is_upper {
            distance >= diagonal
        } else {
            distance <= diagonal
        }
    };
    let kept = matrix([rows, columns], |row, column| f32::from(is_kept(row, column)))?;
    // A product would keep NaN and infinities.
    let selected = Float::select(&floats::operand(1).to_bool(), floats::operand(0), 0.0);
    apply(context.builder, selected, &[&x, &kept], x.element).map(|value| vec![value])
}
