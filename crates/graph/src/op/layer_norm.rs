//! Layer normalisation over the channels, or over the channels of each head.

use std::fmt;

use super::norms::{self, EPSILON, normed, norms};
use super::operands::{count, exactly, expect};
use super::{
    Definition, Gradients, GraphBuilder, LayerNormBackward, Locality, NodeValues, OpError, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, parameter};
use crate::dtype::DType;
use crate::tolerance::{cancellation, narrow, tolerance};
use crate::value::ValueId;

/// Normalises each group of `D` channels: `(x [..,G·D], weight [D], bias [D]) → (x − mean) / √(variance + epsilon) · weight + bias`. The
/// variance is the biased one. `G` is 1, or the number of heads if each is normalised. <https://arxiv.org/abs/1607.06450>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Constant added to the variance.
    pub epsilon: f32,
}

/// Returns the shape of the result for operands `(x, weight, bias)`.
pub(super) fn shape([x, weight, bias]: [&[usize]; 3]) -> Result<Vec<Shape>, OpError> {
    let shape = norms::shape([x, weight])?;
    expect("bias", bias, weight)?;
    Ok(shape)
}

/// Computes the norm without the last `padding` channels, whose result is 0.
pub(super) fn padded<T: Real>(epsilon: f32, padding: usize, operands: [&Array<T>; 3], y: &mut Array<T>) {
    let [x, weight, bias] = operands.map(Array::values);
    let width = weight.len();
    let d = width - padding;
    let channels = T::from_f64(d as f64);
    for (y, x) in y.values_mut().chunks_mut(width).zip(x.chunks(width)) {
        let x = &x[..d];
        let mean = x.iter().copied().sum::<T>() / channels;
        let variance = x.iter().map(|&v| (v - mean).powi(2)).sum::<T>() / channels;
        let deviation = (variance + T::from_f32(epsilon)).sqrt();
        for i in 0..d {
            y[i] = (x[i] - mean) / deviation * weight[i] + bias[i];
        }
    }
}

impl Definition for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ε={:e}", self.epsilon)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        shape(exactly(operands)?)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        norms::LAYER_NORM_FLOPS * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 1..3 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let operands = [0, 1, 2].map(|index| operands[index]);
        padded(self.epsilon, 0, operands, &mut results[0]);
    }

    fn cases(cases: &mut Cases<Self>) {
        for (outer, channels, weight) in norms(cases) {
            let operands = || {
                vec![
                    normed(&outer, channels, weight),
                    parameter(&[weight]),
                    parameter(&[weight]),
                ]
            };
            let op = Self { epsilon: EPSILON };
            cases.push(op, operands());
            if weight == channels {
                cases.push_in_arena(op, operands());
            }
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let d = operands[1].values().len();
        // x is exact, so that only the errors of f32 are amplified.
        let amplified = (cancellation(operands[0], d, self.epsilon) - 1.0) * tolerance(DType::F32, d);
        narrow(dtype) + tolerance(DType::F32, d) + amplified
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let backward = LayerNormBackward {
            epsilon: self.epsilon,
            fixed_deviation: false,
            parameters: true,
            residual: false,
            sums: false,
        };
        let gradients = builder.push_node(backward, [node.inputs[0], node.inputs[1], gradient])?;
        Ok(gradients.into_iter().map(Some).collect())
    }
}
