//! Elementwise functions and the SwiGLU gate.

use super::Shape;
use crate::graph::Activation;

pub(super) fn flops_per_element(activation: Activation) -> u64 {
    match activation {
        Activation::GeluErf => 5,
        Activation::GeluTanh => 9,
        Activation::QuickGelu => 5,
        Activation::Silu => 4,
        Activation::Relu | Activation::Tanh => 1,
    }
}

pub(super) fn swiglu_shape([x]: [&[usize]; 1]) -> Result<Shape, String> {
    match x.split_last() {
        Some((&d, outer)) if d % 2 == 0 => Ok(outer.iter().copied().chain([d / 2]).collect()),
        _ => Err(format!("x has shape {x:?}, expected an even number of channels")),
    }
}
