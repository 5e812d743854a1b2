//! Tolerances of results in a dtype against the reference, derived from the epsilon of the dtype and the number of terms that an element
//! sums.
//!
//! Tolerances are relative to the largest magnitude of the result ([`check_close`](crate::reference::check_close)). If a bound `B` per
//! element is known, `max B / max |y|` is used. At the largest element this is the bound itself.

use crate::array::Array;
use crate::dtype::DType;

/// Returns the tolerance of [`check_close`](crate::reference::check_close) for an op that computes in `dtype`. The op accumulates in f32 or
/// better, and sums `reduction` terms per element. ε is the distance from 1 to the next number of the dtype:
///
/// - f32: `ε · (4 + 2·√reduction)`.
/// - Narrower dtypes: `ε · 4`, plus the tolerance of f32.
///
/// Each of the K additions has an error of up to ε/2 of the partial sum. The errors have random signs, and partial sums grow as √k. They
/// add up to about `√(Σ k) · ε/2 ≈ K/√2 · ε/2` terms, while the result is about √K terms. The root mean square error is `ε/3 · √K` of the
/// result. The worst of many elements has about 5 times this error, covered by `2·√K`. The constant covers operations that are not sums (a
/// division, an exponential). For narrow dtypes, it also covers one rounding each of operands and result.
pub fn tolerance(dtype: DType, reduction: usize) -> f64 {
    let single = f64::from(f32::EPSILON) * (4.0 + 2.0 * (reduction as f64).sqrt());
    match dtype {
        DType::F16 => single + 4.0 * half::f16::EPSILON.to_f64(),
        DType::BF16 => single + 4.0 * half::bf16::EPSILON.to_f64(),
        _ => single,
    }
}

/// Returns half the distance from 1 to the next number: the relative error of one rounding.
pub(crate) fn unit_roundoff(dtype: DType) -> f64 {
    let epsilon = match dtype {
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
        _ => f64::from(f32::EPSILON),
    };
    epsilon / 2.0
}

/// Returns the tolerance of a result that is computed from exact operands in f32 and then rounded to `dtype`. `roundings` is the error in
/// f32, in units of f32's unit roundoff.
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

/// Returns the part of a tolerance for one rounding of an f32 result to `dtype`. 0 for f32.
pub fn narrow(dtype: DType) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => unit_roundoff(dtype),
        _ => 0.0,
    }
}

/// Returns the tolerance of an output of a whole model of `nodes` nodes against double precision, relative to the largest element. It is
/// 1e-4 in f32. In a narrower dtype each step rounds operands or result about twice, by at most ε/2. These errors add up at random, and the
/// worst of many elements has about four times the root mean square error.
pub fn model_tolerance(dtype: DType, nodes: usize) -> f64 {
    let epsilon = match dtype {
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
        _ => return 1e-4,
    };
    let roundings = 2.0 * nodes as f64;
    4.0 * epsilon / 2.0 * roundings.sqrt()
}

/// Returns the factor by which subtracting the mean amplifies the rounding errors of x, in the worst row of `channels`. At least 1. The
/// subtraction keeps the errors, which are then divided by the deviation.
pub fn cancellation(x: &Array, channels: usize, epsilon: f32) -> f64 {
    let amplification = x.values().chunks(channels.max(1)).map(|row| {
        let (mean, deviation) = mean_and_deviation(row, epsilon);
        mean.abs() / deviation
    });
    amplification.fold(1.0, f64::max)
}

/// Returns the mean of a row and its standard deviation as norms compute it.
pub(crate) fn mean_and_deviation(row: &[f64], epsilon: f32) -> (f64, f64) {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
    (mean, (variance + f64::from(epsilon)).sqrt())
}
