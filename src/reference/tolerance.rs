//! How close a result in a dtype has to be to the reference's: derived from the dtype's epsilon and from how many terms an
//! element sums, in one place.
//!
//! Tolerances are relative to the largest magnitude of the result ([`check_close`](super::check_close)). Where a bound `B` per
//! element is known, `max B / max |y|` is used: at the largest element that is the bound itself.

use super::Array;
use crate::ops::{Linear, Op, Pool, Rounding, Transpose};
use crate::tensor::DType;

/// The tolerance of [`check_close`](super::check_close) for an op that computes in `dtype` with f32 accumulation or better,
/// and sums `reduction` terms for an element: `ε · (4 + 2·√reduction)` for f32, where ε is the distance from 1 to the next
/// number of the type; `ε · 4` plus that for the narrower types.
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
pub(crate) fn rounded(dtype: DType, roundings: f64) -> f64 {
    unit_roundoff(dtype) + roundings * unit_roundoff(DType::F32)
}

/// The tolerance of the fused attention kernel over `keys` keys. In f32 twice the [`tolerance`] of a sum over keys and
/// channels, since an error of the scores is one of the exponential too, and at most 65 roundings and one per 16 keys, since
/// the accumulators are rescaled once per tile of 32 and |y| ≤ max |v|. A narrow type rounds the weights for P·V and the
/// result: an error of u · Σ p·|v| and one of u · |y|, which together are 2u of the largest.
pub(crate) fn fused_attention_tolerance(dtype: DType, keys: usize, head_dim: usize) -> f64 {
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
pub(crate) fn layer_norm_tolerance(
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
    let of_op = op_tolerance(&Op::LayerNorm { epsilon }, &operands, dtype);
    if reread { bound } else { bound.min(of_op) }
}

/// The [`tolerance`] of `op` on these operands, which are numbers of `dtype` (pixels excepted); 0 for an op that moves
/// elements and computes nothing.
pub fn op_tolerance(op: &Op, operands: &[&Array], dtype: DType) -> f64 {
    // What is computed in f32 and rounded once.
    let narrow = match dtype {
        DType::F16 | DType::BF16 => unit_roundoff(dtype),
        _ => 0.0,
    };
    let extents = |index: usize| operands.get(index).map_or(&[] as &[usize], |array| array.shape());
    match op {
        Op::Prepend | Op::GridMask | Op::ConcatChannels | Op::Pool(Pool::Token(_) | Pool::Max { .. }) => 0.0,
        Op::Tokens(tokens) if !tokens.position => 0.0,
        Op::Transpose(Transpose {
            scale: false,
            combine: None,
            ..
        }) => 0.0,
        Op::Linear(Linear {
            rounding: Some(Rounding::Float8(_)),
            ..
        }) if dtype.size() == 2 => {
            let channels = extents(1).iter().skip(1).product();
            tolerance(dtype, channels) + float8_accumulation(channels)
        }
        Op::PatchConv(_) | Op::Linear(_) => tolerance(dtype, extents(1).iter().skip(1).product()),
        Op::Pool(Pool::Mean { skip }) => match extents(0).get(1).map_or(1, |n| n - skip) {
            1 => 0.0,
            tokens => narrow + tolerance(DType::F32, tokens),
        },
        // The scores' error, which grows with head_dim, is an error of the exponential too.
        Op::Attention(spec) => {
            let keys = extents(spec.operands.keys()).get(1).copied().unwrap_or(1);
            // What adds a bias rounds the scores once more.
            (2.0 + f64::from(spec.bias)) * tolerance(dtype, keys + spec.head_dim)
        }
        // The scores are not rounded to the dtype. An error of a score is one of ln Σ e^s; of the entropy up to Σ p·|ln p + H| ≤
        // 2·H ≤ 2·ln(keys) times as large.
        Op::AttentionStatistics(spec) => {
            let keys = extents(spec.operands.keys()).get(1).copied().unwrap_or(1);
            (2.0 + 2.0 * (keys as f64).ln()) * tolerance(DType::F32, keys + spec.head_dim)
        }
        Op::LayerNorm { epsilon } => {
            let d = extents(1).iter().product();
            // x is exact; what is amplified are errors of f32.
            let amplified = (cancellation(operands, d, *epsilon) - 1.0) * tolerance(DType::F32, d);
            narrow + tolerance(DType::F32, d) + amplified
        }
        // The norm's, of what is not exact: its errors of f32 are amplified as well.
        Op::SwiGluNorm { epsilon, .. } => {
            let d = extents(1).iter().product();
            let gated = operands
                .first()
                .and_then(|x| super::eval(&Op::SwiGlu, &[*x]).ok());
            let amplified = gated.map_or(1.0, |gated| cancellation(&[&gated], d, *epsilon));
            narrow + (1.0 + 2.0 * amplified) * tolerance(DType::F32, d)
        }
        // No mean is subtracted, so nothing cancels.
        Op::RmsNorm { .. } => narrow + tolerance(DType::F32, extents(1).iter().product()),
        // A product and a sum, or two products.
        Op::Rope(_) | Op::Affine | Op::Transpose(_) => narrow + tolerance(DType::F32, 2),
        // Weights are quotients of sums over as many cells of each axis as the table has at most.
        Op::GridPositions => {
            narrow + 4.0 * tolerance(DType::F32, 2 * extents(1).first().copied().unwrap_or(1))
        }
        // Each rank's part was rounded; the sum is rounded once a rank at most, the result once.
        Op::AllReduce(spec) => narrow * (spec.ranks + 1) as f64 + tolerance(DType::F32, spec.ranks),
        Op::Normalize(_)
        | Op::PatchExtract(_)
        | Op::Tokens(_)
        | Op::Add
        | Op::Scale
        | Op::MulScalar(_)
        | Op::Activation(_)
        | Op::SwiGlu => narrow + tolerance(DType::F32, 1),
    }
}

/// What GEMMs of FP8 lose on Hopper, whose matrix cores add 32 products at once to sums of 14 bits, and cut off the rest: half of
/// 2⁻¹³ each time, always towards 0. <https://arxiv.org/abs/2412.19437>, section 3.3.2
fn float8_accumulation(channels: usize) -> f64 {
    channels.div_ceil(32) as f64 * 2f64.powi(-14)
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

/// Subtracting the mean leaves the rounding errors of x, which are then divided by the deviation: how much larger they
/// become in the worst row, at least 1.
fn cancellation(operands: &[&Array], channels: usize, epsilon: f32) -> f64 {
    let rows = operands.first().map_or(&[] as &[f64], |x| x.values());
    let amplification = rows.chunks(channels.max(1)).map(|row| {
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
