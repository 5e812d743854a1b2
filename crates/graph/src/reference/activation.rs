//! Activation functions.

use crate::ops::Activation;

pub(super) fn activate(activation: Activation, x: f64) -> f64 {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
    match activation {
        // erfc keeps its precision where 1 + erf would cancel.
        Activation::GeluErf => x * 0.5 * libm::erfc(-x * FRAC_1_SQRT_2),
        // (1 + tanh z)/2 = σ(2z), which does not cancel either.
        Activation::GeluTanh => x * sigmoid(2.0 * FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Silu => x * sigmoid(x),
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
