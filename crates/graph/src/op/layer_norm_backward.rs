//! Derivative of layer normalisation.

use std::fmt;

use super::operands::{count, exactly, expect};
use super::{Definition, Locality, OpError, Shape, norms};
use crate::array::{Array, Real};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::tolerance::{cancellation, narrow, tolerance};

/// `(x [..,G·D], weight [D], dy, residual?) → (dx, dweight?, dbias?, sums?)` of [`LayerNorm`](super::LayerNorm). With
/// `n = (x − mean) / √(variance + epsilon)` and `g = dy · weight`, dx is `(g − mean(g) − n · mean(g · n)) / √(variance + epsilon)`. The
/// gradients of weight and bias are the sums of `dy · n` and `dy` over all rows, in order. The residual, another gradient of x, is added to
/// dx. The sums are those of the columns of dx, the gradient of a bias that was added to x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormBackward {
    /// Constant added to the variance.
    pub epsilon: f32,
    /// True if the standard deviation is treated as a constant, as in some attribution rules. Omits `n · mean(g · n)`.
    pub fixed_deviation: bool,
    /// True if the gradients of weight and bias are results too.
    pub parameters: bool,
    /// True if there is a residual.
    pub residual: bool,
    /// True if the sums of the columns of dx are a result too. Requires that weight has all channels.
    pub sums: bool,
}

impl Definition for LayerNormBackward {
    const NAME: &'static str = "layer_norm_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ε={:e}", self.epsilon)?;
        f.write_str(if self.fixed_deviation { " fixed" } else { "" })?;
        f.write_str(if self.parameters { " parameters" } else { "" })?;
        f.write_str(if self.residual { " +residual" } else { "" })?;
        f.write_str(if self.sums { " +sums" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let operands = if self.residual {
            let [x, weight, dy, residual] = exactly(operands)?;
            expect("residual", residual, x)?;
            [x, weight, dy]
        } else {
            exactly(operands)?
        };
        let [x, weight, dy] = operands;
        expect("dy", dy, x)?;
        let mut shapes = norms::shape([x, weight])?;
        shapes.extend(vec![weight.to_vec(); 2 * usize::from(self.parameters)]);
        if self.sums {
            expect("weight", weight, &x[x.len().saturating_sub(1)..])?;
            shapes.push(weight.to_vec());
        }
        Ok(shapes)
    }

    /// The operations of the norm, the two means (4), their subtraction (5) and the sums of the parameters (3).
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        let sums = if self.parameters { 12 } else { 9 };
        (norms::LAYER_NORM_FLOPS + sums + u64::from(self.residual) + u64::from(self.sums))
            * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(2)
    }

    fn locality(&self, index: usize) -> Locality {
        match index {
            0 => Locality::Rows { parameters: 1..2 },
            _ => Locality::Whole,
        }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, weight, dy] = [0, 1, 2].map(|index| operands[index].values());
        let d = weight.len();
        let channels = T::from_f64(d as f64);
        let (results, sums) = results.split_at_mut(1);
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
            if self.parameters
                && let [d_weight, d_bias, ..] = sums
            {
                norms::add(d_weight.values_mut(), |i| dy[i] * normal(i));
                norms::add(d_bias.values_mut(), |i| dy[i]);
            }
        }
        if let Some(residual) = operands.get(3) {
            norms::add(results[0].values_mut(), |i| residual.values()[i]);
        }
        if self.sums
            && let Some(sums) = sums.last_mut()
        {
            for dx in results[0].values().chunks_exact(d) {
                norms::add(sums.values_mut(), |i| dx[i]);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        norms::backward_cases(cases, 3, |fixed_deviation, parameters| Self {
            epsilon: norms::EPSILON,
            fixed_deviation,
            parameters,
            residual: false,
            sums: false,
        });
        let with_residual = Self {
            epsilon: norms::EPSILON,
            fixed_deviation: false,
            parameters: true,
            residual: true,
            sums: false,
        };
        norms::residual_cases(cases, with_residual, 0);
        let with_sums = Self {
            sums: true,
            ..with_residual
        };
        norms::residual_cases(cases, with_sums, 3);
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let d = operands[1].values().len();
        // n has the errors of the norm.
        let amplified = cancellation(operands[0], d, self.epsilon);
        match index {
            // n is multiplied by itself.
            0 => narrow(dtype) + (1.0 + 2.0 * amplified) * tolerance(DType::F32, d),
            3 => {
                let rows = operands[0].values().len() / d;
                let of_dx = (1.0 + 2.0 * amplified) * tolerance(DType::F32, d);
                narrow(dtype) + tolerance(DType::F32, rows) + of_dx
            }
            _ => {
                let rows = operands[0].values().len() / d;
                narrow(dtype) + tolerance(DType::F32, rows) + amplified * tolerance(DType::F32, d)
            }
        }
    }
}
