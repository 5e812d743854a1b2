//! Activation functions, their derivatives, and their gates `f(x) / x`.

use super::program::Real;
use hipvit::ops::Activation;

const GELU_SLOPE: f64 = 1.702;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The standard normal distribution's Φ.
fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// `2 · √(2/π) · (x + 0.044715 · x³)`, whose sigmoid is the gate of the tanh form of GELU, and its derivative.
fn tanh_argument(x: f64) -> (f64, f64) {
    let factor = 2.0 * std::f64::consts::FRAC_2_PI.sqrt();
    (
        factor * (x + 0.044_715 * x.powi(3)),
        factor * (1.0 + 3.0 * 0.044_715 * x * x),
    )
}

/// `f(x) / x`, continued to 0.
pub(super) fn gate<T: Real>(activation: Activation, x: T) -> T {
    let x = x.wide();
    T::of(match activation {
        Activation::GeluErf => normal_cdf(x),
        Activation::GeluTanh => sigmoid(tanh_argument(x).0),
        Activation::QuickGelu => sigmoid(GELU_SLOPE * x),
        Activation::Silu => sigmoid(x),
        Activation::Relu => f64::from(u8::from(x > 0.0)),
        Activation::Tanh if x == 0.0 => 1.0,
        Activation::Tanh => x.tanh() / x,
    })
}

pub(super) fn apply<T: Real>(activation: Activation, x: T) -> T {
    match activation {
        Activation::Tanh => x.tanh(),
        _ => x * gate(activation, x),
    }
}

pub(super) fn derivative<T: Real>(activation: Activation, x: T) -> T {
    let x = x.wide();
    // Of x · σ(s(x)).
    let gated = |s: f64, slope: f64| {
        let sigma = sigmoid(s);
        sigma + x * sigma * (1.0 - sigma) * slope
    };
    T::of(match activation {
        Activation::GeluErf => {
            let density = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
            normal_cdf(x) + x * density
        }
        Activation::GeluTanh => {
            let (argument, slope) = tanh_argument(x);
            gated(argument, slope)
        }
        Activation::QuickGelu => gated(GELU_SLOPE * x, GELU_SLOPE),
        Activation::Silu => gated(x, 1.0),
        Activation::Relu => f64::from(u8::from(x > 0.0)),
        Activation::Tanh => 1.0 - x.tanh().powi(2),
    })
}
