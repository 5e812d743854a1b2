//! Derivatives of activation functions.

use std::fmt;

use super::activation::{ACTIVATIONS, wide};
use super::operands::{count, exactly, expect, one};
use super::{Activation, Definition, Division, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation as gradient};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x, dy) → (dx, sums?)` with `dx = f'(x) · dy` for an [`Activation`] f, and the sums of the columns of dx, the gradient of a bias before f.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationBackward {
    /// The function.
    pub activation: Activation,
    /// True for the slope of the secant through 0, `f(x) / x`, instead of the derivative. This treats the gate of f as a constant.
    pub secant: bool,
    /// True if the sums of the columns are a result too.
    pub sums: bool,
}

impl ActivationBackward {
    /// Returns the factor of `dy`.
    pub fn slope<T: Real>(self, x: T) -> T {
        use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, TAU};
        let number = T::from_f64;
        let normal_cdf = || number(0.5) * (-x * number(FRAC_1_SQRT_2)).erfc();
        // Twice the argument of tanh. Its sigmoid is the gate.
        let doubled = || number(2.0 * FRAC_2_PI.sqrt()) * (x + number(0.044_715) * x.powi(3));
        // Derivative of x · σ(s(x)), or its gate.
        let gated = |s: T, slope: T| {
            let decay = (-s).exp();
            let sigma = T::ONE / (T::ONE + decay);
            // 1 − σ(s), which cancels for a large s.
            let rest = if s > T::ZERO {
                decay * sigma
            } else {
                T::ONE - sigma
            };
            if self.secant {
                sigma
            } else {
                sigma + x * sigma * rest * slope
            }
        };
        match self.activation {
            Activation::GeluErf if self.secant => normal_cdf(),
            Activation::GeluErf => {
                let density = (number(-0.5) * x * x).exp() / number(TAU.sqrt());
                normal_cdf() + x * density
            }
            Activation::GeluTanh => {
                let slope = T::ONE + number(3.0 * 0.044_715) * x * x;
                gated(doubled(), number(2.0 * FRAC_2_PI.sqrt()) * slope)
            }
            Activation::QuickGelu => gated(number(1.702) * x, number(1.702)),
            Activation::Silu => gated(x, T::ONE),
            Activation::Relu if x > T::ZERO => T::ONE,
            Activation::Relu => T::ZERO,
            Activation::Tanh if self.secant && x != T::ZERO => x.tanh() / x,
            Activation::Tanh => T::ONE - x.tanh().powi(2),
        }
    }
}

impl Definition for ActivationBackward {
    const NAME: &'static str = "activation_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.activation.name())?;
        f.write_str(if self.secant { " secant" } else { "" })?;
        f.write_str(if self.sums { " +sums" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, dy] = exactly(operands)?;
        expect("dy", dy, x)?;
        let mut shapes = one(x)?;
        if self.sums {
            let [.., channels] = *x else {
                return Err("x is a scalar".into());
            };
            shapes.push(vec![channels]);
        }
        Ok(shapes)
    }

    /// Estimated from the function, the slope, the product and the sum.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        (2 * self.activation.flops_per_element() + 1 + u64::from(self.sums)) * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(1)
    }

    fn locality(&self, index: usize) -> Locality {
        match index {
            0 => Locality::Rows { parameters: 0..0 },
            _ => Locality::Whole,
        }
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        (!self.sums).then(|| Division {
            operands: vec![(0, blocks), (1, blocks)],
            constants: Vec::new(),
            unit: None,
        })
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let pairs = operands[0].values().iter().zip(operands[1].values());
        for (dx, (&x, &dy)) in results[0].values_mut().iter_mut().zip(pairs) {
            *dx = self.slope(x) * dy;
        }
        if let [dx, sums] = results {
            let sums = sums.values_mut();
            for row in dx.values().chunks_exact(sums.len()) {
                sums.iter_mut().zip(row).for_each(|(sum, &dx)| *sum += dx);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, every_form| {
            let every = if every_form { ACTIVATIONS.len() } else { 1 };
            for (index, &activation) in ACTIVATIONS.iter().take(every).enumerate() {
                let op = Self {
                    activation,
                    secant: cases.is_micro() && index % 2 == 1,
                    sums: false,
                };
                let operands = || vec![wide(&shape), gradient(&shape)];
                cases.push_in_arena(op, operands());
                if index == 0 {
                    let op = Self { sums: true, ..op };
                    cases.push_in_arena(op, operands());
                    cases.push_result(1, op, operands());
                }
                if every_form {
                    let secant = !op.secant;
                    cases.push(Self { secant, ..op }, operands());
                }
            }
        });
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        // A sum of two terms that may cancel, with a few roundings each.
        let of_dx = narrow(dtype) + tolerance(DType::F32, 4);
        match (index, operands[0].shape()) {
            (1, [rows @ .., _]) => of_dx + tolerance(DType::F32, rows.iter().product()),
            _ => of_dx,
        }
    }
}
