//! The SwiGLU gate.

use super::Array;
use super::activation::activate;
use crate::ops::Activation;

pub(super) fn swiglu(x: &Array, y: &mut Array) {
    let d = y.shape().last().copied().unwrap_or(0);
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        let (row, column) = (i / d, i % d);
        let gate = x.values()[row * 2 * d + column];
        *v = activate(Activation::Silu, gate) * x.values()[row * 2 * d + d + column];
    }
}
