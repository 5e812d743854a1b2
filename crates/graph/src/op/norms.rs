//! Cost, shape rule and cases that the norms and their derivatives share.

use super::operands::one;
use super::{OpError, Shape};
use crate::array::Real;
use crate::cases::{AWKWARD, Cases, Operand, Scale, activation, parameter, with};

/// Operations per element of layer normalisation: mean (1), centred square (3), normalise (2), weight and bias (2).
pub(super) const LAYER_NORM_FLOPS: u64 = 8;

/// Operations per element of RMS normalisation: square (2), normalise (1), weight (1).
pub(super) const RMS_NORM_FLOPS: u64 = 4;

/// Returns the shape of the result for operands `(x, weight)`: one or several groups of channels, each normalised.
pub(super) fn shape([x, weight]: [&[usize]; 2]) -> Result<Vec<Shape>, OpError> {
    let [.., channels] = *x else {
        return Err("x is a scalar".into());
    };
    match *weight {
        [d] if d > 0 && channels > 0 && channels.is_multiple_of(d) => one(x),
        _ => Err(OpError::layout(
            "`weight`",
            weight,
            format!("[{channels}] or a part of it for each group of channels"),
        )),
    }
}

/// Constant of the cases, which is added to the variance or mean square.
pub(super) const EPSILON: f32 = 1e-6;

/// Returns rows, channels per row, and channels that are normalised together: a whole row, or a head of queries and keys.
pub(super) fn norms<O>(cases: &Cases<O>) -> Vec<(Vec<usize>, usize, usize)> {
    let mut all = Vec::new();
    match cases.scale() {
        Scale::Model { sizes, .. } => {
            let outer = vec![sizes.batch, sizes.tokens];
            all.push((outer.clone(), sizes.channels(), sizes.channels()));
            all.push((outer, sizes.channels(), sizes.head_dim));
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                let outer = vec![a.batch, a.tokens];
                all.push((outer.clone(), a.channels, a.channels));
                for &(heads, head_dim) in a.heads {
                    all.push((outer.clone(), heads * head_dim, head_dim));
                }
            }
            // The kernel entry for wide rows: more waves than a block has.
            for channels in [1025, 1032, 2048] {
                all.push((vec![3, 3], channels, channels));
            }
            // Rows that do not fit in one wave.
            all.push((vec![2, 1], 4100, 4100));
            all.push((vec![1, 3], 8192, 8192));
        }
        Scale::Heads => {}
    }
    all
}

/// Returns an operand of a norm. Whole rows have a mean far from zero, as in residual streams.
pub(super) fn normed(outer: &[usize], channels: usize, weight: usize) -> Operand {
    Operand {
        mean: if weight == channels { 3.0 } else { 0.0 },
        ..activation(&with(outer, channels))
    }
}

/// Adds `term(i)` to each element of `sums`.
pub(super) fn add<T: Real>(sums: &mut [T], term: impl Fn(usize) -> T) {
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum += term(i);
    }
}

/// Adds the cases of result `result` of the derivative `op` with another gradient of x as its last operand.
pub(super) fn residual_cases<O: Clone>(cases: &mut Cases<O>, op: O, result: usize) {
    let every_second = norms(cases).into_iter().step_by(2);
    // Sums are of whole rows.
    for (outer, channels, weight) in
        every_second.filter(|&(_, channels, weight)| result == 0 || channels == weight)
    {
        let gradient = || activation(&with(&outer, channels));
        let x = normed(&outer, channels, weight);
        let operands = vec![x, parameter(&[weight]), gradient(), gradient()];
        if result == 0 {
            cases.push_in_arena(op.clone(), operands);
        } else {
            cases.push_result(result, op.clone(), operands);
        }
    }
}

/// Adds the cases of a norm's derivative with up to `results` results. `op` takes whether the deviation is fixed, and whether the gradients
/// of the parameters are results.
pub(super) fn backward_cases<O>(cases: &mut Cases<O>, results: usize, op: impl Fn(bool, bool) -> O) {
    for (index, (outer, channels, weight)) in norms(cases).into_iter().enumerate() {
        let operands = || {
            vec![
                normed(&outer, channels, weight),
                parameter(&[weight]),
                activation(&with(&outer, channels)),
            ]
        };
        cases.push_in_arena(op(false, true), operands());
        // Each result at some of the sizes.
        for result in 1..results {
            if cases.is_micro() || index % results == result {
                cases.push_result(result, op(false, true), operands());
            }
        }
        if index % results == 0 {
            cases.push(op(true, false), operands());
        }
    }
}
