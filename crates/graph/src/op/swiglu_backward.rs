//! Derivative of the SwiGLU gate.

use std::fmt;

use super::activation::wide;
use super::operands::{count, exactly, expect, one};
use super::{Activation, ActivationBackward, Definition, Locality, OpError, Shape, SwiGlu, swiglu};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x [..,2·D], dy [..,D]) → dx [..,2·D]` of [`SwiGlu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwiGluBackward {
    /// True if SiLU's slope is that of the secant, as in [`ActivationBackward::secant`].
    pub secant: bool,
}

impl Definition for SwiGluBackward {
    const NAME: &'static str = "swiglu_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.secant { " secant" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, dy] = exactly(operands)?;
        expect("dy", dy, &swiglu::shape(x)?)?;
        one(x)
    }

    /// The operations of the gate, of SiLU's slope and of its products.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        (2 * SwiGlu::FLOPS_PER_ELEMENT + 3) * count(operands[1])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (x, dy) = (operands[0].values(), operands[1].values());
        let d = operands[1].shape().last().copied().unwrap_or(1);
        let silu = ActivationBackward {
            activation: Activation::Silu,
            secant: self.secant,
            sums: false,
        };
        let rows = x.chunks_exact(2 * d).zip(dy.chunks_exact(d));
        for (dx, (x, dy)) in results[0].values_mut().chunks_exact_mut(2 * d).zip(rows) {
            for (c, &dy) in dy.iter().enumerate() {
                let (gate, value) = (x[c], x[d + c]);
                dx[c] = silu.slope(gate) * value * dy;
                dx[d + c] = Activation::Silu.apply(gate) * dy;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], every_form| {
            let operands = || {
                vec![
                    wide(&[batch, tokens, 2 * channels]),
                    activation(&[batch, tokens, channels]),
                ]
            };
            cases.push(Self { secant: false }, operands());
            if every_form && tokens < 64 {
                cases.push(Self { secant: true }, operands());
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 4)
    }
}
