//! The SwiGLU gate, and with the norm of its result.

use super::rows::{Source, block_len, in_blocks};
use super::{Activation, Shape, activation, layer_norm};

/// SiLU and the product.
pub(super) const FLOPS_PER_ELEMENT: u64 = activation::flops_per_element(Activation::Silu) + 1;

pub(super) fn shape([x]: [&[usize]; 1]) -> Result<Shape, String> {
    match x.split_last() {
        Some((&d, outer)) if d % 2 == 0 => Ok(outer.iter().copied().chain([d / 2]).collect()),
        _ => Err(format!("x has shape {x:?}, expected an even number of channels")),
    }
}

pub(super) fn norm_shape(padding: usize, [x, weight, bias]: [&[usize]; 3]) -> Result<Shape, String> {
    let gated = shape([x])?;
    if gated.last() != weight.first() {
        return Err(format!(
            "`weight` has shape {weight:?}, expected half of x's channels, {x:?}"
        ));
    }
    match gated.last() {
        Some(&d) if padding > 0 && padding >= d => {
            Err(format!("all of the {d} channels are padding, {padding}"))
        }
        _ => layer_norm::shape([&gated, weight, bias]),
    }
}

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
