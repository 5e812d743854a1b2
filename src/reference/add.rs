//! Elementwise sums and products.

use super::Array;

pub(super) fn add(x: &Array, addend: &Array, y: &mut Array) {
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        *v = x.values()[i] + addend.values()[i % addend.values().len()];
    }
}

pub(super) fn scale(x: &Array, gamma: &Array, y: &mut Array) {
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        *v = x.values()[i] * gamma.values()[i % gamma.values().len()];
    }
}

pub(super) fn affine(operands: &[&Array], y: &mut Array) {
    let [x, weight, bias] = [0, 1, 2].map(|i| operands[i].values());
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        *v = x[i] * weight[i % weight.len()] + bias[i % bias.len()];
    }
}

pub fn map(x: &Array, y: &mut Array, f: impl Fn(f64) -> f64) {
    for (y, &x) in y.values_mut().iter_mut().zip(x.values()) {
        *y = f(x);
    }
}
