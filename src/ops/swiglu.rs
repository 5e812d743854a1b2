//! The SwiGLU gate, and with the norm of its result.

use super::rows::{Source, block_len, in_blocks};
use super::{Activation, activation, layer_norm};

/// [`Op::SwiGlu`](crate::ops::Op::SwiGlu); `d` is the output's channels.
pub(crate) fn run(x: &[f32], d: usize, out: &mut [f32]) {
    in_blocks(Source::InPlace, out, block_len(d), |start, block| {
        gate(&x[2 * start..], d, block);
    });
}

/// [`Op::SwiGluNorm`](crate::ops::Op::SwiGluNorm).
pub(crate) fn run_norm(
    epsilon: f32,
    padding: usize,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    out: &mut [f32],
) {
    let d = weight.len();
    let normed = d - padding;
    in_blocks(Source::InPlace, out, block_len(d), |start, block| {
        gate(&x[2 * start..], d, block);
        for row in block.chunks_mut(d) {
            let (row, rest) = row.split_at_mut(normed);
            layer_norm::in_place(epsilon, row, &weight[..normed], &bias[..normed]);
            rest.fill(0.0);
        }
    });
}

/// The gated of the first rows of `x`, as many as `rows` has.
fn gate(x: &[f32], d: usize, rows: &mut [f32]) {
    for (y, x) in rows.chunks_mut(d).zip(x.chunks(2 * d)) {
        let (gate, value) = x.split_at(d);
        y.copy_from_slice(gate);
        activation::apply(Activation::Silu, y);
        y.iter_mut().zip(value).for_each(|(y, v)| *y *= v);
    }
}
