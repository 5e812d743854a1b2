//! Assembly of class, register and patch tokens.

use rayon::prelude::*;

use super::{Shape, expect, finished, optional};
use crate::ops::Tokens;

pub(super) fn prepend_shape(inputs: &[&[usize]]) -> Result<Shape, String> {
    let Some((x, prefixes)) = inputs.split_last() else {
        return Err("takes at least 1 operand".into());
    };
    let [b, n, d] = **x else {
        return Err(format!("x has shape {x:?}, expected [B, N, D]"));
    };
    let mut tokens = n;
    for prefix in prefixes {
        match **prefix {
            [1, p, channels] if channels == d => tokens += p,
            _ => return Err(format!("a prefix has shape {prefix:?}, expected [1, P, {d}]")),
        }
    }
    Ok(vec![b, tokens, d])
}

pub(super) fn tokens_shape(spec: &Tokens, inputs: &[&[usize]]) -> Result<Shape, String> {
    let mut rest = inputs.iter();
    let x = optional(&mut rest, true, "x")?.unwrap_or_default();
    let prefix = optional(&mut rest, spec.prefix, "prefix")?;
    let position = optional(&mut rest, spec.position, "position")?;
    finished(&rest)?;
    let [b, n, d] = *x else {
        return Err(format!("x has shape {x:?}, expected [B, N, D]"));
    };
    if let Some(position) = position {
        expect("position", position, &[1, n, d])?;
    }
    match prefix {
        None => Ok(vec![b, n, d]),
        Some(&[1, p, channels]) if channels == d => Ok(vec![b, p + n, d]),
        Some(prefix) => Err(format!("`prefix` has shape {prefix:?}, expected [1, P, {d}]")),
    }
}

/// Joins `prefixes`, each the same for every image, and the `[N,D]` elements of each image of `x`, with `position`
/// added to them: [`Op::Prepend`](crate::ops::Op::Prepend) and [`Op::Tokens`](crate::ops::Op::Tokens).
pub(crate) fn run(x: &[f32], image: usize, prefixes: &[&[f32]], position: Option<&[f32]>, out: &mut [f32]) {
    let before: usize = prefixes.iter().map(|prefix| prefix.len()).sum();
    out.par_chunks_mut((before + image).max(1))
        .zip(x.par_chunks(image.max(1)))
        .for_each(|(out, x)| {
            let mut rest = out;
            for prefix in prefixes {
                let (tokens, after) = rest.split_at_mut(prefix.len());
                tokens.copy_from_slice(prefix);
                rest = after;
            }
            rest.copy_from_slice(x);
            if let Some(position) = position {
                rest.iter_mut().zip(position).for_each(|(y, p)| *y += p);
            }
        });
}
