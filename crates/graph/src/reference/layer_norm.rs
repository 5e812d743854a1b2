//! Layer and RMS normalisation.

use super::Array;

pub(super) fn rms_norm(epsilon: f32, operands: &[&Array], y: &mut Array) {
    let (x, weight) = (operands[0], operands[1].values());
    let d = weight.len();
    for (y, x) in y.values_mut().chunks_mut(d).zip(x.values().chunks(d)) {
        let mean_square = x.iter().map(|v| v.powi(2)).sum::<f64>() / d as f64;
        let root = (mean_square + f64::from(epsilon)).sqrt();
        for i in 0..d {
            y[i] = x[i] / root * weight[i];
        }
    }
}

pub(super) fn layer_norm(epsilon: f32, operands: &[&Array], y: &mut Array) {
    padded_layer_norm(epsilon, 0, operands, y);
}

/// Without the last `padding` channels, of which the result is 0.
pub(super) fn padded_layer_norm(epsilon: f32, padding: usize, operands: &[&Array], y: &mut Array) {
    let (x, weight, bias) = (operands[0], operands[1].values(), operands[2].values());
    let width = weight.len();
    let d = width - padding;
    for (y, x) in y.values_mut().chunks_mut(width).zip(x.values().chunks(width)) {
        let x = &x[..d];
        let mean = x.iter().sum::<f64>() / d as f64;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / d as f64;
        let deviation = (variance + f64::from(epsilon)).sqrt();
        for i in 0..d {
            y[i] = (x[i] - mean) / deviation * weight[i] + bias[i];
        }
    }
}
