//! How close a result in a dtype has to be to the reference's: derived from the dtype's epsilon and from how many terms an
//! element sums, in one place.
//!
//! Tolerances are relative to the largest magnitude of the result ([`check_close`](super::check_close)). Where a bound `B` per
//! element is known, `max B / max |y|` is used: at the largest element that is the bound itself.

use super::Array;
use crate::dtype::DType;
use crate::op::{Definition, LayerNorm};

/// Returns the tolerance of [`check_close`](super::check_close) for an op that computes in `dtype`. The op accumulates in f32 or better,
/// and sums `reduction` terms per element. ε is the distance from 1 to the next number of the dtype:
///
/// - f32: `ε · (4 + 2·√reduction)`.
/// - Narrower dtypes: `ε · 4`, plus the tolerance of f32.
///
/// Each of the K additions errs by up to ε/2 of the partial sum. The errors have random signs and partial sums grow
/// as √k, so they add up to about `√(Σ k) · ε/2 ≈ K/√2 · ε/2` terms, while the result itself is about √K terms: an
/// error of `ε/3 · √K` of the result in the root mean square. The worst of many elements is some 5 times that,
/// which `2·√K` covers. The constant pays for the operations that are not sums (a division, an exponential)
/// and, in a narrow type, for rounding operands and result once each.
pub fn tolerance(dtype: DType, reduction: usize) -> f64 {
    let single = f64::from(f32::EPSILON) * (4.0 + 2.0 * (reduction as f64).sqrt());
    match dtype {
        DType::F16 => single + 4.0 * half::f16::EPSILON.to_f64(),
        DType::BF16 => single + 4.0 * half::bf16::EPSILON.to_f64(),
        _ => single,
    }
}

/// Half the distance from 1 to the next number: the relative error of rounding once.
fn unit_roundoff(dtype: DType) -> f64 {
    let epsilon = match dtype {
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
        _ => f64::from(f32::EPSILON),
    };
    epsilon / 2.0
}

/// The tolerance of what is computed from exact operands in f32, with errors of up to `roundings` times f32's unit roundoff,
/// and then rounded to `dtype`.
pub fn rounded(dtype: DType, roundings: f64) -> f64 {
    unit_roundoff(dtype) + roundings * unit_roundoff(DType::F32)
}

/// Returns the tolerance of the fused attention kernel over `keys` keys.
///
/// - f32: twice the [`tolerance`] of a sum over keys and channels, since the exponential passes on an error of the scores. At most 65
///   roundings plus one per 16 keys, since the accumulators are rescaled once per tile of 32 keys and |y| ≤ max |v|.
/// - Narrower dtypes: the weights for P·V and the result are rounded. The errors are u · Σ p·|v| and u · |y|, together at most 2u of the
///   largest value.
pub fn fused_attention_tolerance(dtype: DType, keys: usize, head_dim: usize) -> f64 {
    let sums = 2.0 * tolerance(DType::F32, keys + head_dim);
    let single = sums.min((65.0 + keys as f64 / 16.0) * unit_roundoff(DType::F32));
    match dtype {
        DType::F16 | DType::BF16 => 2.0 * unit_roundoff(dtype) + single,
        _ => single,
    }
}

/// The tolerance of the kernel layer_norm with operands `(x, weight, bias)` and the result `y`: at most that of the op, and
/// `u·|y| + u₃₂·(24·max|x|/σ·|weight| + 4·|bias|)` for an element. The sums of a row go in parts of at most 32 and a tree,
/// some 16 roundings of the largest |x|, which the deviation σ then divides. Where `reread`, the kernel reads x again as it
/// was rounded to the dtype.
pub fn layer_norm_tolerance(
    operands: [&Array; 3],
    y: &Array,
    epsilon: f32,
    dtype: DType,
    reread: bool,
) -> f64 {
    let [x, weight, bias] = operands;
    let largest = |values: &[f64]| values.iter().fold(0f64, |m, v| m.max(v.abs()));
    let reach = x.values().chunks(weight.values().len().max(1)).map(|row| {
        let (_, deviation) = mean_and_deviation(row, epsilon);
        largest(row) / deviation
    });
    let reach = reach.fold(0.0, f64::max) * largest(weight.values());
    let (u, single) = (unit_roundoff(dtype), unit_roundoff(DType::F32));
    let rereading = if reread { u * reach } else { 0.0 };
    let errors = rereading + single * (24.0 * reach + 4.0 * largest(bias.values()));
    let bound = u + errors / largest(y.values()).max(f64::MIN_POSITIVE);
    let of_op = LayerNorm { epsilon }.tolerance(0, &operands, dtype);
    if reread { bound } else { bound.min(of_op) }
}

/// The part of a tolerance that is due to rounding once to `dtype` what is computed in f32; 0 for f32.
pub fn narrow(dtype: DType) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => unit_roundoff(dtype),
        _ => 0.0,
    }
}

/// How far an output of a whole model of `nodes` nodes may be from the one in double precision, as a part of the largest. In
/// f32 1e-4. In a narrower type each step rounds its operands or its result about twice, by ε/2 at most; such errors add up
/// at random, and the worst of many elements is some four times the root mean square.
pub fn model_tolerance(dtype: DType, nodes: usize) -> f64 {
    let epsilon = match dtype {
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
        _ => return 1e-4,
    };
    let roundings = 2.0 * nodes as f64;
    4.0 * epsilon / 2.0 * roundings.sqrt()
}

/// Subtracting the mean leaves the rounding errors of x, which are then divided by the deviation: how much larger they become in the worst row of
/// `channels`, at least 1.
pub fn cancellation(x: &Array, channels: usize, epsilon: f32) -> f64 {
    let amplification = x.values().chunks(channels.max(1)).map(|row| {
        let (mean, deviation) = mean_and_deviation(row, epsilon);
        mean.abs() / deviation
    });
    amplification.fold(1.0, f64::max)
}

fn mean_and_deviation(row: &[f64], epsilon: f32) -> (f64, f64) {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
    (mean, (variance + f64::from(epsilon)).sqrt())
}
