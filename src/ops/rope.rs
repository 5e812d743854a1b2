//! Rotary position embedding: pairs of channels of queries and keys, rotated by angles that depend on the token's place.

use super::rows::{Source, block_len, in_blocks};
use super::{Rope, RopePairs, Shape, count, expect};

/// Two multiplications and an addition for each element that is rotated.
const FLOPS_PER_ELEMENT: u64 = 3;

pub(super) fn shape(spec: &Rope, [x, table]: [&[usize]; 2]) -> Result<Shape, String> {
    let width = spec.heads * spec.head_dim;
    if width == 0 || !spec.head_dim.is_multiple_of(2) {
        return Err(format!(
            "has {} heads of {} channels, which cannot be rotated in pairs",
            spec.heads, spec.head_dim
        ));
    }
    let &[_, tokens, channels] = x else {
        return Err(format!("x has shape {x:?}, expected [B,N,C]"));
    };
    if !channels.is_multiple_of(width) || spec.rotated == 0 || spec.rotated > channels / width {
        return Err(format!(
            "x has {channels} channels, expected at least {} times {width}",
            spec.rotated.max(1)
        ));
    }
    match *table {
        [1, places, d] if (1..=tokens).contains(&places) => {
            let of_heads = if d == spec.head_dim { d } else { width };
            expect("table", table, &[1, places, of_heads])?;
            Ok(x.to_vec())
        }
        _ => Err(format!(
            "`table` has shape {table:?}, expected at most {tokens} tokens"
        )),
    }
}

/// `table` is the second operand's shape.
pub(super) fn flops(spec: &Rope, table: &[usize], output: &[usize]) -> u64 {
    let rotated = [output[0], table[1], spec.rotated, spec.heads, spec.head_dim];
    FLOPS_PER_ELEMENT * count(&rotated)
}

/// [`Op::Rope`](crate::ops::Op::Rope) of `[B, tokens, channels]`, with the table of the last `places` tokens.
pub(crate) fn run(
    spec: &Rope,
    x: Source<'_>,
    table: &[f32],
    [tokens, channels, places]: [usize; 3],
    out: &mut [f32],
) {
    let Rope {
        heads,
        head_dim,
        rotated,
        pairs,
    } = *spec;
    let stride = table.len() / places;
    in_blocks(x, out, block_len(channels), |start, block| {
        for (row, x) in block.chunks_mut(channels).enumerate() {
            let token = (start / channels + row) % tokens;
            let Some(place) = (token + places).checked_sub(tokens) else {
                continue;
            };
            let table = &table[place * stride..][..stride];
            let heads = x[..rotated * heads * head_dim].chunks_mut(head_dim);
            for (x, table) in heads.zip(table.chunks(head_dim).cycle()) {
                let (cosine, sine) = table.split_at(head_dim / 2);
                rotate(pairs, x, cosine, sine);
            }
        }
    });
}

fn rotate(pairs: RopePairs, x: &mut [f32], cosine: &[f32], sine: &[f32]) {
    let angles = cosine.iter().zip(sine);
    let turn = |a: &mut f32, b: &mut f32, (&cosine, &sine): (&f32, &f32)| {
        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
    };
    match pairs {
        RopePairs::Halves => {
            let (first, second) = x.split_at_mut(cosine.len());
            let both = first.iter_mut().zip(second);
            both.zip(angles).for_each(|((a, b), angle)| turn(a, b, angle));
        }
        RopePairs::Interleaved => {
            for (pair, angle) in x.chunks_exact_mut(2).zip(angles) {
                if let [a, b] = pair {
                    turn(a, b, angle);
                }
            }
        }
    }
}
