//! RMS normalisation over the channels, or over the channels of each head.

use std::fmt;

use super::norms::{EPSILON, RMS_NORM_FLOPS, normed, norms, shape};
use super::operands::{count, exactly};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, RmsNormBackward, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// Normalises each group of `D` channels: `(x [..,G·D], weight [D]) → x / √(mean(x²) + epsilon) · weight`.
/// <https://arxiv.org/abs/1910.07467>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// Constant added to the mean square.
    pub epsilon: f32,
}

impl Definition for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ε={:e}", self.epsilon)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        shape(exactly(operands)?)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        RMS_NORM_FLOPS * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 1..2 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (x, weight) = (operands[0], operands[1].values());
        let d = weight.len();
        let rows = results[0].values_mut().chunks_mut(d);
        for (y, x) in rows.zip(x.values().chunks(d)) {
            let mean_square = x.iter().map(|v| v.powi(2)).sum::<T>() / T::from_f64(d as f64);
            let root = (mean_square + T::from_f32(self.epsilon)).sqrt();
            for i in 0..d {
                y[i] = x[i] / root * weight[i];
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        for (outer, channels, weight) in norms(cases) {
            let operands = || vec![normed(&outer, channels, weight), parameter(&[weight])];
            let op = Self { epsilon: EPSILON };
            cases.push(op, operands());
            if weight == channels {
                cases.push_in_arena(op, operands());
            }
        }
    }

    /// No mean is subtracted, so nothing cancels.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, operands[1].values().len())
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let backward = RmsNormBackward {
            epsilon: self.epsilon,
            fixed_root: false,
            parameters: true,
        };
        let gradients = builder.push_node(backward, [node.inputs[0], node.inputs[1], gradient])?;
        Ok(gradients.into_iter().map(Some).collect())
    }
}
