//! Linear layers, also those of which x is rounded: to 8 bits, or to bf16 with the weight.

use std::borrow::Cow;

use half::bf16;
use rayon::prelude::*;

use super::Array;
use super::activation::activate;
use super::array::{dot, extents};
use crate::ops::{Float8Scale, Levels, Linear, Rounding, float8};

pub(super) fn linear(spec: &Linear, operands: &[&Array], y: &mut Array) {
    let (x, weight) = (operands[0], operands[1]);
    let [n, k] = extents(weight);
    let weight = match spec.rounding {
        Some(Rounding::Bf16) => rounded_bf16(weight.values()).into(),
        _ => Cow::Borrowed(weight.values()),
    };
    let bias = spec.bias.then(|| operands[2].values());
    let residual = spec.residual.then(|| operands[operands.len() - 1].values());
    y.values_mut().par_chunks_mut(n).enumerate().for_each(|(row, y)| {
        let x = &x.values()[row * k..(row + 1) * k];
        let x = match spec.rounding {
            Some(Rounding::Float8(scale)) => rounded_float8(x, scale).into(),
            Some(Rounding::Int8(levels)) => rounded(x, levels).into(),
            Some(Rounding::Bf16) => rounded_bf16(x).into(),
            None => Cow::Borrowed(x),
        };
        for (j, y) in y.iter_mut().enumerate() {
            let dot = dot(&x, &weight[j * k..(j + 1) * k]);
            let sum = dot + bias.map_or(0.0, |bias| bias[j]);
            let active = spec.activation.map_or(sum, |a| activate(a, sum));
            *y = active + residual.map_or(0.0, |residual| residual[row * n + j]);
        }
    });
}

/// The values in bf16, rounded from f32 as executors do.
fn rounded_bf16(values: &[f64]) -> Vec<f64> {
    let round = |&x: &f64| bf16::from_f32(x as f32).to_f64();
    values.iter().map(round).collect()
}

/// The row as E4M3 represents it, rounded in f32 as executors do.
fn rounded_float8(row: &[f64], scale: Float8Scale) -> Vec<f64> {
    let scale = match scale {
        Float8Scale::Fixed(scale) => scale,
        Float8Scale::Row => {
            let largest = row.iter().fold(0f64, |largest, x| largest.max(x.abs())) as f32;
            if row.iter().any(|x| !x.is_finite()) {
                return vec![f64::NAN; row.len()];
            }
            let scale = largest / 448.0;
            if scale < f32::MIN_POSITIVE {
                return vec![0.0; row.len()];
            }
            scale
        }
    };
    let round = |&x: &f64| f64::from(float8::round(x as f32, scale));
    row.iter().map(round).collect()
}

/// The row as 8 bits represent it, by [`quantize_row`](crate::ops::int8::quantize_row)'s rule, which is in f32: what is
/// rounded must be what executors round.
fn rounded(row: &[f64], levels: Levels) -> Vec<f64> {
    let row: Vec<f32> = row.iter().map(|&x| x as f32).collect();
    if row.iter().any(|x| !x.is_finite()) {
        return vec![f64::NAN; row.len()];
    }
    let low = row.iter().fold(0f32, |low, &x| low.min(x));
    let high = row.iter().fold(0f32, |high, &x| high.max(x));
    let scale = match levels {
        Levels::Range => high / 255.0 - low / 255.0,
        Levels::Magnitude => high.max(-low) / 127.5,
        Levels::Fixed { scale, .. } => scale,
    };
    if scale < f32::MIN_POSITIVE {
        return vec![0.0; row.len()];
    }
    let inverse = 1.0 / scale;
    // What q = 0 stands for, in steps.
    let zero = match levels {
        Levels::Range => (low * inverse).round_ties_even(),
        Levels::Magnitude => -128.0,
        Levels::Fixed { zero, .. } => -f32::from(zero),
    };
    let steps = |x: f32| match levels {
        Levels::Range => x * inverse,
        Levels::Magnitude | Levels::Fixed { .. } => x / scale,
    };
    let level = |x: f32| (steps(x).round_ties_even() - zero).clamp(0.0, 255.0) + zero;
    row.iter()
        .map(|&x| f64::from(level(x)) * f64::from(scale))
        .collect()
}
