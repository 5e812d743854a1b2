//! Rotary position embedding: pairs of channels of queries and keys, rotated by angles that depend on the token's place.

use super::*;

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
