//! The SwiGLU gate.

use super::activation::wide;
use super::operands::{count, exactly, one};
use super::{Activation, Definition, Division, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x [..,2·D]) → silu(x[..,:D]) · x[..,D:]`, the gate of SwiGLU. <https://arxiv.org/abs/2002.05202>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwiGlu;

impl SwiGlu {
    /// Operations of SiLU and the product.
    pub const FLOPS_PER_ELEMENT: u64 = Activation::Silu.flops_per_element() + 1;
}

/// Returns the shape of the gated channels.
pub(super) fn shape(x: &[usize]) -> Result<Shape, OpError> {
    match x.split_last() {
        Some((&d, outer)) if d % 2 == 0 => Ok(outer.iter().copied().chain([d / 2]).collect()),
        _ => Err(OpError::layout("x", x, "an even number of channels")),
    }
}

/// Computes the gated `x` into `y`.
pub(super) fn gate<T: Real>(x: &Array<T>, y: &mut Array<T>) {
    let d = y.shape().last().copied().unwrap_or(0);
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        let (row, column) = (i / d, i % d);
        let gate = x.values()[row * 2 * d + column];
        *v = Activation::Silu.apply(gate) * x.values()[row * 2 * d + d + column];
    }
}

impl Definition for SwiGlu {
    const NAME: &'static str = "swiglu";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        one(shape(x)?)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        Self::FLOPS_PER_ELEMENT * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        (blocks == 1).then(|| Division::of_channels(2))
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        gate(operands[0], &mut results[0]);
    }

    fn cases(cases: &mut Cases<Self>) {
        let factor = if let Scale::Model { .. } = cases.scale() {
            4
        } else {
            1
        };
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let channels = (factor * channels).next_multiple_of(2);
            cases.push(Self, vec![wide(&[batch, tokens, channels])]);
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }
}
