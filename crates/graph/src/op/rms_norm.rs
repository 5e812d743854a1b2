//! RMS normalisation over the channels, or over the channels of each head.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::layer_norm::{EPSILON, normed, norms};
use super::operands::{count, exactly, one};
use super::{Definition, Locality, Mul, OpError, RmsNormBackward, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, parameter};
use crate::dtype::DType;
use crate::error::Result;
use crate::grad::only;
use crate::reference::{narrow, tolerance};
use crate::{Graph, Node, ValueId};

/// Normalises each group of `D` channels: `(x [..,G·D], weight [D]) → x / √(mean(x²) + epsilon) · weight`.
/// <https://arxiv.org/abs/1910.07467>
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNorm {
    /// Constant added to the mean square.
    pub epsilon: f32,
}

impl RmsNorm {
    /// Square (2), normalise (1), weight (1).
    pub const FLOPS_PER_ELEMENT: u64 = 4;
}

/// Returns the shape of the result for operands `(x, weight)`: one or several groups of channels, each normalised.
pub(super) fn shape([x, weight]: [&[usize]; 2]) -> Result<Vec<Shape>, OpError> {
    let [.., channels] = *x else {
        return Err("x is a scalar".into());
    };
    match *weight {
        [d] if d > 0 && channels > 0 && channels.is_multiple_of(d) => one(x),
        _ => Err(OpError::layout(
            "`weight`",
            weight,
            format!("[{channels}] or a part of it for each group of channels"),
        )),
    }
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
        Self::FLOPS_PER_ELEMENT * count(&results[0])
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

    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let gradient = only(node, gradients)?;
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let backward = RmsNormBackward {
            epsilon: self.epsilon,
            fixed_root: false,
        };
        let d_x = graph.push_backward(node, backward, [x, weight, gradient])?;
        let d = graph.value(weight).shape[0];
        let ones = graph.push_backward_constant(node, d, &[1.0])?;
        let normal = graph.push_backward(node, *self, [x, ones])?;
        let d_weight = graph.push_backward(node, Mul, [gradient, normal])?;
        Ok(vec![Some(d_x), Some(graph.summed_to(node, d_weight, weight)?)])
    }

    fn cases(cases: &mut Cases) {
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
}
