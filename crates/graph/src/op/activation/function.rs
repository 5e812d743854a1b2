//! The activation functions.

use serde::{Deserialize, Serialize};

use crate::array::Real;

/// Elementwise function: `(x) → f(x)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x · Φ(x)` with the error function. <https://arxiv.org/abs/1606.08415>
    GeluErf,
    /// Tanh approximation of GELU, `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`.
    GeluTanh,
    /// `x · σ(1.702·x)`, CLIP's approximation of GELU.
    QuickGelu,
    /// `x · σ(x)`.
    Silu,
    /// `max(x, 0)`.
    Relu,
    /// The hyperbolic tangent (the pooler of BERT-like heads, and pre-logits).
    Tanh,
}

/// All activation functions.
pub const ACTIVATIONS: [Activation; 6] = [
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Tanh,
];

impl Activation {
    /// Returns the function's name in PyTorch.
    pub fn name(self) -> &'static str {
        match self {
            Self::GeluErf => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::QuickGelu => "quick_gelu",
            Self::Silu => "silu",
            Self::Relu => "relu",
            Self::Tanh => "tanh",
        }
    }

    /// Floating-point operations per element.
    pub const fn flops_per_element(self) -> u64 {
        match self {
            Self::GeluErf => 5,
            Self::GeluTanh => 9,
            Self::QuickGelu => 5,
            Self::Silu => 4,
            Self::Relu | Self::Tanh => 1,
        }
    }

    /// Computes the function.
    pub fn apply<T: Real>(self, x: T) -> T {
        use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
        let number = T::from_f64;
        match self {
            // erfc stays accurate where 1 + erf would cancel.
            Self::GeluErf => x * number(0.5) * (-x * number(FRAC_1_SQRT_2)).erfc(),
            // (1 + tanh z)/2 = σ(2z) does not cancel either.
            Self::GeluTanh => {
                x * sigmoid(number(2.0) * number(FRAC_2_PI).sqrt() * (x + number(0.044715) * x.powi(3)))
            }
            Self::QuickGelu => x * sigmoid(number(1.702) * x),
            Self::Silu => x * sigmoid(x),
            Self::Relu => x.max(T::ZERO),
            Self::Tanh => x.tanh(),
        }
    }
}

fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}
