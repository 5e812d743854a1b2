//! The gate of SwiGLU.

use crate::array::{Array, Real};
use crate::op::{Activation, OpError, Shape};

/// `(x [..,2·D]) → silu(x[..,:D]) · x[..,D:]`, the gate of SwiGLU. <https://arxiv.org/abs/2002.05202>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwiGlu;

impl SwiGlu {
    /// Operations of SiLU and the product.
    pub const FLOPS_PER_ELEMENT: u64 = Activation::Silu.flops_per_element() + 1;
}

/// Returns the shape of the gated channels.
pub(in crate::op) fn shape(x: &[usize]) -> Result<Shape, OpError> {
    match x.split_last() {
        Some((&d, outer)) if d % 2 == 0 => Ok(outer.iter().copied().chain([d / 2]).collect()),
        _ => Err(OpError::layout("x", x, "an even number of channels")),
    }
}

/// Computes the gated `x` into `y`.
pub(in crate::op) fn gate<T: Real>(x: &Array<T>, y: &mut Array<T>) {
    let d = y.shape().last().copied().unwrap_or(0);
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        let (row, column) = (i / d, i % d);
        let gate = x.values()[row * 2 * d + column];
        *v = Activation::Silu.apply(gate) * x.values()[row * 2 * d + d + column];
    }
}
