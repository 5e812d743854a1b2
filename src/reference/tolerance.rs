//! How close a result in a dtype has to be to the oracle's: derived from the dtype's epsilon and from how many terms an
//! element sums, in one place for all who compare.

use super::Array;
use crate::ops::{Op, Pool};
use crate::tensor::DType;

/// The tolerance of [`check_close`](super::check_close) for an op that computes in `dtype` with f32 accumulation or better,
/// and sums `reduction` products for an element: `ε · (4 + 2·√reduction)` for f32, where ε is the distance from 1 to the next
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
        DType::F32 | DType::U8 => single,
        DType::F16 => single + 4.0 * half::f16::EPSILON.to_f64(),
        DType::BF16 => single + 4.0 * half::bf16::EPSILON.to_f64(),
    }
}

/// The [`tolerance`] of `op` on these operands, which are numbers of `dtype` (pixels excepted); 0 for an op that moves
/// elements and computes nothing.
pub fn op_tolerance(op: &Op, operands: &[&Array], dtype: DType) -> f64 {
    let extents = |index: usize| operands.get(index).map_or(&[] as &[usize], |array| array.shape());
    match op {
        Op::Prepend | Op::ConcatChannels | Op::Pool(Pool::Token(_) | Pool::Max { .. }) => 0.0,
        Op::Tokens(tokens) if !tokens.position => 0.0,
        Op::PatchConv(_) | Op::Linear(_) => tolerance(dtype, extents(1).iter().skip(1).product()),
        Op::Pool(Pool::Mean { skip }) => tolerance(dtype, extents(0).get(1).map_or(1, |n| n - skip)),
        // The scores' error, which grows with head_dim, is an error of the exponential too.
        Op::Attention(spec) => {
            let keys = operands
                .last()
                .and_then(|kv| kv.shape().get(1))
                .copied()
                .unwrap_or(1);
            2.0 * tolerance(dtype, keys + spec.head_dim)
        }
        Op::LayerNorm { epsilon } => {
            let d = extents(1).iter().product();
            // x is exact; what is amplified are errors of f32.
            let amplified = (cancellation(operands, d, *epsilon) - 1.0) * tolerance(DType::F32, d);
            tolerance(dtype, d) + amplified
        }
        Op::Normalize(_)
        | Op::PatchExtract(_)
        | Op::Tokens(_)
        | Op::Add
        | Op::Scale
        | Op::MulScalar(_)
        | Op::Activation(_)
        | Op::SwiGlu => tolerance(dtype, 1),
    }
}

/// How far an output of a whole model of `nodes` nodes may be from the one in double precision, as a part of the largest. In
/// f32 1e-4. In a narrower type each step rounds its operands or its result about twice, by ε/2 at most; such errors add up
/// at random, and the worst of many elements is some four times the root mean square.
pub fn model_tolerance(dtype: DType, nodes: usize) -> f64 {
    let epsilon = match dtype {
        DType::F32 | DType::U8 => return 1e-4,
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
    };
    let roundings = 2.0 * nodes as f64;
    4.0 * epsilon / 2.0 * roundings.sqrt()
}

/// Subtracting the mean leaves the rounding errors of x, which are then divided by the deviation: how much larger they
/// become in the worst row, at least 1.
fn cancellation(operands: &[&Array], channels: usize, epsilon: f32) -> f64 {
    let rows = operands.first().map_or(&[] as &[f64], |x| x.values());
    let amplification = rows.chunks(channels.max(1)).map(|row| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
        mean.abs() / (variance + f64::from(epsilon)).sqrt()
    });
    amplification.fold(1.0, f64::max)
}
