//! The rounding to FP8 (E4M3) of what linear layers multiply.
//!
//! A step for all elements, so that GPUs apply it to a GEMM's result; it is found by calibration: the largest magnitude over some
//! images becomes 448. What is larger saturates. The CPU rounds and multiplies in f32, to the same numbers that a GPU's FP8
//! multiplies; only the order of the sums differs.

use rayon::prelude::*;

use crate::float8::{Float8, Overflow};

/// Elements of a task.
const PIECE: usize = 1 << 14;

/// The number nearest to `x` that E4M3 represents with this step. NaN stays NaN.
pub fn round(x: f32, scale: f32) -> f32 {
    // As GPUs do it: a multiplication by the reciprocal.
    let bits = Float8::E4M3.from_f32(x * (1.0 / scale), Overflow::Saturate);
    Float8::E4M3.to_f32(bits) * scale
}

/// All of `x`, [rounded](round).
pub(crate) fn rounded(x: &[f32], scale: f32) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    let pieces = y.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE));
    pieces.for_each(|(y, x)| y.iter_mut().zip(x).for_each(|(y, &x)| *y = round(x, scale)));
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_to_steps_and_saturate() {
        let x = [0.0, 1.0, -1.06, 1.07, 2000.0, -2000.0, f32::INFINITY];
        let scale = 2.0;
        // Between 0.5 and 1 the unit is 1/16.
        assert_eq!(rounded(&x, scale), [0.0, 1.0, -1.0, 1.125, 896.0, -896.0, 896.0]);
        assert!(round(f32::NAN, scale).is_nan());
        // Below 2^-6 there is one unit, 2^-9.
        assert_eq!(round(0.003, 1.0), 1.5f32.round_ties_even() / 512.0);
    }
}
