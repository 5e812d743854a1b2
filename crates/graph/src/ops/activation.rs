//! Activation functions.

use super::*;

pub(super) const fn flops_per_element(activation: Activation) -> u64 {
    match activation {
        Activation::GeluErf => 5,
        Activation::GeluTanh => 9,
        Activation::QuickGelu => 5,
        Activation::Silu => 4,
        Activation::Relu | Activation::Tanh => 1,
    }
}
