//! The SwiGLU gate.

use super::rows::{Source, block_len, in_blocks};
use super::{Activation, Shape, activation};

pub(super) fn shape([x]: [&[usize]; 1]) -> Result<Shape, String> {
    match x.split_last() {
        Some((&d, outer)) if d % 2 == 0 => Ok(outer.iter().copied().chain([d / 2]).collect()),
        _ => Err(format!("x has shape {x:?}, expected an even number of channels")),
    }
}

/// [`Op::SwiGlu`](crate::ops::Op::SwiGlu); `d` is the output's channels.
pub(crate) fn run(x: &[f32], d: usize, out: &mut [f32]) {
    let len = block_len(d);
    in_blocks(Source::InPlace, out, len, |start, block| {
        let x = &x[2 * start..];
        for (y, x) in block.chunks_mut(d).zip(x.chunks(2 * d)) {
            let (gate, value) = x.split_at(d);
            y.copy_from_slice(gate);
            activation::apply(Activation::Silu, y);
            y.iter_mut().zip(value).for_each(|(y, v)| *y *= v);
        }
    });
}
