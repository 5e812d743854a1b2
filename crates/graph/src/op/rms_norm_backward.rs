//! Derivative of RMS normalisation.

use std::fmt;

use super::operands::{count, exactly, expect};
use super::{Definition, Locality, OpError, Shape, norms};
use crate::array::{Array, Real};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x [..,G·D], weight [D], dy) → (dx, dweight?)` of [`RmsNorm`](super::RmsNorm). With `n = x / √(mean(x²) + epsilon)` and
/// `g = dy · weight`, dx is `(g − n · mean(g · n)) / √(mean(x²) + epsilon)`. The gradient of the weight is the sum of `dy · n` over all
/// rows, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormBackward {
    /// Constant added to the mean square.
    pub epsilon: f32,
    /// True if the root is treated as a constant, as in some attribution rules. Omits `n · mean(g · n)`.
    pub fixed_root: bool,
    /// True if the gradient of the weight is a result too.
    pub parameters: bool,
}

impl RmsNormBackward {
    /// Returns the largest minuend over the largest result, at least 1. A row of one channel cancels but for epsilon.
    fn amplification(&self, operands: &[&Array]) -> f64 {
        let [x, weight, dy] = [0, 1, 2].map(|index| operands[index].values());
        let d = weight.len();
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |m: f64, v| m.max(v.abs()));
        let rows = x.chunks_exact(d).zip(dy.chunks_exact(d));
        let minuend = rows.fold(0.0, |most: f64, (x, dy)| {
            let mean_square = x.iter().map(|v| v.powi(2)).sum::<f64>() / d as f64;
            let root = (mean_square + f64::from(self.epsilon)).sqrt();
            let mut products = dy.iter().zip(weight).map(|(dy, weight)| dy * weight);
            most.max(largest(&mut products) / root)
        });
        let results = self.eval(operands).unwrap_or_default();
        let result = results
            .first()
            .map_or(0.0, |dx| largest(&mut dx.values().iter().copied()));
        if result > 0.0 {
            (minuend / result).max(1.0)
        } else {
            1.0
        }
    }
}

impl Definition for RmsNormBackward {
    const NAME: &'static str = "rms_norm_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ε={:e}", self.epsilon)?;
        f.write_str(if self.fixed_root { " fixed" } else { "" })?;
        f.write_str(if self.parameters { " parameters" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, weight, dy] = exactly(operands)?;
        expect("dy", dy, x)?;
        let mut shapes = norms::shape([x, weight])?;
        shapes.extend(self.parameters.then(|| weight.to_vec()));
        Ok(shapes)
    }

    /// The operations of the norm, the mean (3), its subtraction (4) and the sum of the parameter (2).
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        (norms::RMS_NORM_FLOPS + if self.parameters { 9 } else { 7 }) * count(&results[0])
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
            let mean_square = x.iter().map(|v| v.powi(2)).sum::<T>() / channels;
            let root = (mean_square + T::from_f32(self.epsilon)).sqrt();
            let dot = if self.fixed_root {
                T::ZERO
            } else {
                (0..d).map(|i| dy[i] * weight[i] * x[i] / root).sum::<T>() / channels
            };
            for i in 0..d {
                dx[i] = (dy[i] * weight[i] - x[i] / root * dot) / root;
            }
            if let [d_weight] = sums {
                norms::add(d_weight.values_mut(), |i| dy[i] * x[i] / root);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        norms::backward_cases(cases, 2, |fixed_root, parameters| Self {
            epsilon: norms::EPSILON,
            fixed_root,
            parameters,
        });
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let d = operands[1].values().len();
        match index {
            // n has the errors of the norm and is multiplied by itself. The subtraction may cancel.
            0 => narrow(dtype) + self.amplification(operands) * 3.0 * tolerance(DType::F32, d),
            _ => {
                let rows = operands[0].values().len() / d;
                narrow(dtype) + tolerance(DType::F32, rows) + tolerance(DType::F32, d)
            }
        }
    }
}
