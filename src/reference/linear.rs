//! Linear layers.

use rayon::prelude::*;

use super::Array;
use super::activation::activate;
use super::array::{dot, extents};
use crate::ops::Linear;

pub(super) fn linear(spec: &Linear, operands: &[&Array], y: &mut Array) {
    let (x, weight) = (operands[0], operands[1]);
    let [n, k] = extents(weight);
    let bias = spec.bias.then(|| operands[2].values());
    let residual = spec.residual.then(|| operands[operands.len() - 1].values());
    y.values_mut().par_chunks_mut(n).enumerate().for_each(|(row, y)| {
        for (j, y) in y.iter_mut().enumerate() {
            let dot = dot(
                &x.values()[row * k..(row + 1) * k],
                &weight.values()[j * k..(j + 1) * k],
            );
            let sum = dot + bias.map_or(0.0, |bias| bias[j]);
            let active = spec.activation.map_or(sum, |a| activate(a, sum));
            *y = active + residual.map_or(0.0, |residual| residual[row * n + j]);
        }
    });
}
