//! Derivative of layer normalisation with respect to its input.

use std::fmt;

use super::operands::{count, exactly, expect};
use super::{Definition, Locality, OpError, Shape, norms};
use crate::array::{Array, Real};
use crate::dtype::DType;
use crate::tolerance::{cancellation, narrow, tolerance};

/// `(x [..,G·D], weight [D], dy) → dx` of [`LayerNorm`](super::LayerNorm). With `n = (x − mean) / √(variance + epsilon)` and
/// `g = dy · weight`, the result is `(g − mean(g) − n · mean(g · n)) / √(variance + epsilon)`. The gradients of weight and bias are sums of
/// `dy · n` and `dy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormBackward {
    /// Constant added to the variance.
    pub epsilon: f32,
    /// True if the standard deviation is treated as a constant, as in some attribution rules. Omits `n · mean(g · n)`.
    pub fixed_deviation: bool,
}

impl Definition for LayerNormBackward {
    const NAME: &'static str = "layer_norm_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ε={:e}", self.epsilon)?;
        f.write_str(if self.fixed_deviation { " fixed" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, weight, dy] = exactly(operands)?;
        expect("dy", dy, x)?;
        norms::shape([x, weight])
    }

    /// The operations of the norm, the two means (4) and their subtraction (5).
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        (norms::LAYER_NORM_FLOPS + 9) * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(2)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 1..2 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, weight, dy] = [0, 1, 2].map(|index| operands[index].values());
        let d = weight.len();
        let channels = T::from_f64(d as f64);
        let rows = x.chunks_exact(d).zip(dy.chunks_exact(d));
        for (dx, (x, dy)) in results[0].values_mut().chunks_exact_mut(d).zip(rows) {
            let mean = x.iter().copied().sum::<T>() / channels;
            let variance = x.iter().map(|&v| (v - mean).powi(2)).sum::<T>() / channels;
            let deviation = (variance + T::from_f32(self.epsilon)).sqrt();
            let normal = |i: usize| (x[i] - mean) / deviation;
            let sum = (0..d).map(|i| dy[i] * weight[i]).sum::<T>() / channels;
            let dot = if self.fixed_deviation {
                T::ZERO
            } else {
                (0..d).map(|i| dy[i] * weight[i] * normal(i)).sum::<T>() / channels
            };
            for i in 0..d {
                dx[i] = (dy[i] * weight[i] - sum - normal(i) * dot) / deviation;
            }
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let d = operands[1].values().len();
        // n has the errors of the norm and is multiplied by itself.
        let amplified = 2.0 * cancellation(operands[0], d, self.epsilon);
        narrow(dtype) + (1.0 + amplified) * tolerance(DType::F32, d)
    }
}
