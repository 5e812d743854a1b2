//! The SwiGLU gate, and with the norm of its result.

use super::*;

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
