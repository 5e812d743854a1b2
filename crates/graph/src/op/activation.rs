//! Activation functions.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::operands::{count, exactly, one};
use super::{Definition, Division, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, Scale, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

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

impl Definition for Activation {
    const NAME: &'static str = "activation";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", (*self).name())
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        one(x)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        self.flops_per_element() * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        Some(Division::of_channels(blocks))
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        for (y, &x) in results[0].values_mut().iter_mut().zip(operands[0].values()) {
            *y = self.apply(x);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        type ShapeOf = fn([usize; 3]) -> [usize; 3];
        let (every, shape_of): (bool, ShapeOf) = match cases.scale() {
            Scale::Model { every_form, .. } => (every_form, |[batch, tokens, channels]| {
                [batch, tokens, 4 * channels]
            }),
            _ => (true, |shape| shape),
        };
        let activations = if every {
            &ACTIVATIONS[..]
        } else {
            &ACTIVATIONS[..1]
        };
        cases.for_each_shape(|cases, shape, every_form| {
            for &activation in activations {
                cases.push(activation, vec![wide(&shape_of(shape))]);
                if every_form {
                    cases.push_in_arena(activation, vec![wide(&shape_of(shape))]);
                }
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }
}

/// Returns an activation that reaches into the range where the functions are linear.
pub fn wide(shape: &[usize]) -> Operand {
    Operand {
        spread: 6.0,
        ..activation(shape)
    }
}
