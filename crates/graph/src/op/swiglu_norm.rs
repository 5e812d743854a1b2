//! The SwiGLU gate followed by a norm.

use std::fmt;

use super::activation::wide;
use super::norms::LAYER_NORM_FLOPS;
use super::operands::{count, exactly};
use super::{Definition, Locality, OpError, Shape, SwiGlu, layer_norm, swiglu};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, parameter, with};
use crate::dtype::DType;
use crate::tolerance::{cancellation, narrow, tolerance};

/// [`SwiGlu`], then [`LayerNorm`](super::LayerNorm) (EVA-02): `(x [..,2·D], weight [D], bias [D]) → layer_norm(silu(x[..,:D]) · x[..,D:])`. <https://arxiv.org/abs/2303.11331>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwiGluNorm {
    /// Constant added to the variance.
    pub epsilon: f32,
    /// Number of padding channels at the end of the D channels. The norm covers the other channels. The result of padding channels is 0 for
    /// any x, weight and bias.
    pub padding: usize,
}

impl Definition for SwiGluNorm {
    const NAME: &'static str = "swiglu_norm";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ε={:e}", self.epsilon)?;
        match self.padding {
            0 => Ok(()),
            padding => write!(f, " pad {padding}"),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, weight, bias] = exactly(operands)?;
        let gated = swiglu::shape(x)?;
        if gated.last() != weight.first() {
            return Err(OpError::layout(
                "`weight`",
                weight,
                format!("half of x's channels, {x:?}"),
            ));
        }
        match (gated.last(), self.padding) {
            (Some(&d), padding) if padding > 0 && padding >= d => {
                Err(format!("all of the {d} channels are padding, {padding}").into())
            }
            _ => layer_norm::shape([&gated, weight, bias]),
        }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        (SwiGlu::FLOPS_PER_ELEMENT + LAYER_NORM_FLOPS) * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 1..3 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let mut gated = results[0].clone();
        swiglu::gate(operands[0], &mut gated);
        let operands = [&gated, operands[1], operands[2]];
        layer_norm::padded(self.epsilon, self.padding, operands, &mut results[0]);
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                normed(cases, [sizes.batch, sizes.tokens], 2 * sizes.channels(), 0);
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    normed(cases, [a.batch, a.tokens], a.channels, 0);
                }
                // The longest rows that a wave and a block keep in registers for either wave size, and longer ones; more waves than a block
                // has.
                for channels in [2048, 2056, 4096, 4104, 8192, 8195, 8200] {
                    normed(cases, [1, 2], channels, 0);
                }
                normed(cases, [3, 3], 2048, 0);
                // Padded rows. One of them does not fit in registers.
                for (channels, padding) in [(16, 7), (72, 1), (264, 7), (2736, 6), (8200, 3), (65, 2)] {
                    normed(cases, [2, 3], channels, padding);
                }
            }
            Scale::Heads => {}
        }
        if cases.is_micro() {
            normed(cases, [1, 3], 65, 0);
            normed(cases, [1, 3], 64, 5);
        }
    }

    /// The input of the norm is not exact: its f32 errors are amplified too.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let d = operands[1].values().len();
        let gated = SwiGlu.eval(&operands[..1]).unwrap_or_default();
        let amplified = gated
            .first()
            .map_or(1.0, |gated| cancellation(gated, d, self.epsilon));
        narrow(dtype) + (1.0 + 2.0 * amplified) * tolerance(DType::F32, d)
    }
}

fn normed(cases: &mut Cases<SwiGluNorm>, outer: [usize; 2], channels: usize, padding: usize) {
    let x = wide(&with(&outer, 2 * channels));
    let operands = vec![x, parameter(&[channels]), parameter(&[channels])];
    let op = SwiGluNorm {
        epsilon: 1e-6,
        padding,
    };
    cases.push(op, operands);
}
