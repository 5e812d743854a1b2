//! Tensors and numbers of the reference implementation.

use std::fmt;
use std::iter::Sum;
use std::ops::{AddAssign, DivAssign, MulAssign, Neg, SubAssign};

use ndarray::LinalgScalar;

use crate::tensor::Tensor;

/// Numbers that ops are computed in: f64 for accuracy, f32 for speed.
pub trait Real:
    LinalgScalar
    + Default
    + PartialOrd
    + fmt::Debug
    + Send
    + Sync
    + Sum
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;

    /// Returns the nearest number to `value`.
    fn from_f64(value: f64) -> Self;

    /// Returns the nearest number to `value`.
    fn from_f32(value: f32) -> Self {
        Self::from_f64(value.into())
    }

    /// Returns the number in double precision.
    fn to_f64(self) -> f64;

    /// Returns the nearest number in single precision.
    fn to_f32(self) -> f32 {
        self.to_f64() as f32
    }

    /// Absolute value.
    fn abs(self) -> Self;

    /// Larger of two numbers, or the one that is not NaN.
    fn max(self, other: Self) -> Self;

    /// Integer power.
    fn powi(self, exponent: i32) -> Self;

    /// Square root.
    fn sqrt(self) -> Self;

    /// `e^self`.
    fn exp(self) -> Self;

    /// Natural logarithm.
    fn ln(self) -> Self;

    /// Hyperbolic tangent.
    fn tanh(self) -> Self;

    /// Error function.
    fn erf(self) -> Self;

    /// Complementary error function.
    fn erfc(self) -> Self;

    /// Power.
    fn powf(self, exponent: Self) -> Self;

    /// Remainder of the division whose quotient is truncated.
    fn remainder(self, divisor: Self) -> Self;

    /// `e^self − 1`, accurate near 0.
    fn exp_m1(self) -> Self;

    /// `ln(1 + self)`, accurate near 0.
    fn ln_1p(self) -> Self;

    /// Sine.
    fn sin(self) -> Self;

    /// Cosine.
    fn cos(self) -> Self;

    /// Arc tangent.
    fn atan(self) -> Self;

    /// Largest integer that is not larger.
    fn floor(self) -> Self;

    /// Smallest integer that is not smaller.
    fn ceil(self) -> Self;

    /// Integer part.
    fn trunc(self) -> Self;

    /// Nearest integer, the even one of two.
    fn round_ties_even(self) -> Self;
}

macro_rules! real {
    ($T:ty, $erf:path, $erfc:path) => {
        impl Real for $T {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = Self::NEG_INFINITY;

            fn from_f64(value: f64) -> Self {
                value as Self
            }

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn abs(self) -> Self {
                self.abs()
            }

            fn max(self, other: Self) -> Self {
                self.max(other)
            }

            fn powi(self, exponent: i32) -> Self {
                self.powi(exponent)
            }

            fn sqrt(self) -> Self {
                self.sqrt()
            }

            fn exp(self) -> Self {
                self.exp()
            }

            fn ln(self) -> Self {
                self.ln()
            }

            fn tanh(self) -> Self {
                self.tanh()
            }

            fn erf(self) -> Self {
                $erf(self)
            }

            fn erfc(self) -> Self {
                $erfc(self)
            }

            fn powf(self, exponent: Self) -> Self {
                self.powf(exponent)
            }

            fn remainder(self, divisor: Self) -> Self {
                self % divisor
            }

            fn exp_m1(self) -> Self {
                self.exp_m1()
            }

            fn ln_1p(self) -> Self {
                self.ln_1p()
            }

            fn sin(self) -> Self {
                self.sin()
            }

            fn cos(self) -> Self {
                self.cos()
            }

            fn atan(self) -> Self {
                self.atan()
            }

            fn floor(self) -> Self {
                self.floor()
            }

            fn ceil(self) -> Self {
                self.ceil()
            }

            fn trunc(self) -> Self {
                self.trunc()
            }

            fn round_ties_even(self) -> Self {
                self.round_ties_even()
            }
        }
    };
}
real!(f32, libm::erff, libm::erfcf);
real!(f64, libm::erf, libm::erfc);

/// A row-major tensor, in f64 by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T = f64> {
    shape: Vec<usize>,
    values: Vec<T>,
}

impl<T: Real> Array<T> {
    /// Returns `values` in row-major order, or `None` if their number is not the product of `shape`.
    pub fn new(shape: impl Into<Vec<usize>>, values: Vec<T>) -> Option<Self> {
        let shape = shape.into();
        (values.len() == shape.iter().product::<usize>()).then_some(Self { shape, values })
    }

    /// Returns a tensor of zeros.
    pub fn zeros(shape: Vec<usize>) -> Self {
        let len = shape.iter().product();
        Self {
            shape,
            values: vec![T::ZERO; len],
        }
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements in row-major order.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Elements in row-major order, mutable.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Returns the elements in row-major order.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }

    /// Returns the elements rounded to single precision.
    pub fn to_f32(&self) -> Vec<f32> {
        self.values.iter().map(|&value| value.to_f32()).collect()
    }

    /// Returns the extents of an array whose rank the shape rules have checked.
    pub(crate) fn extents<const N: usize>(&self) -> [usize; N] {
        let mut extents = [1; N];
        for (extent, &actual) in extents.iter_mut().zip(&self.shape) {
            *extent = actual;
        }
        extents
    }
}

impl<T: Real> From<&Tensor> for Array<T> {
    fn from(tensor: &Tensor) -> Self {
        Self {
            shape: tensor.shape().to_vec(),
            values: tensor.to_f32().iter().map(|&value| T::from_f32(value)).collect(),
        }
    }
}

/// Returns the dot product. Uses eight partial sums, so that the compiler can vectorise it.
pub(crate) fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    let (x, x_rest) = x.as_chunks::<8>();
    let (y, y_rest) = y.as_chunks::<8>();
    let mut sums = [T::ZERO; 8];
    for (x, y) in x.iter().zip(y) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    let rest: T = x_rest.iter().zip(y_rest).map(|(&x, &y)| x * y).sum();
    sums.iter().copied().sum::<T>() + rest
}
