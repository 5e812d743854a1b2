//! The rounding to FP8 (E4M3) of what linear layers multiply.
//!
//! By a scale for all elements, found by calibration: the largest magnitude over some images becomes 448, and what is larger
//! saturates. Or by a scale for each row (token), whose largest magnitude becomes 448: nothing is calibrated, and results do not
//! depend on the batch. GPUs multiply a GEMM's result by the scales. The CPU rounds and multiplies in f32, to the same numbers that a GPU's
//! FP8 multiplies; only the order of the sums differs.

use rayon::prelude::*;

use super::Float8Scale;
use crate::float8::{Float8, Overflow};

/// Elements of a task.
const PIECE: usize = 1 << 14;

/// The scale by which the largest magnitude of a row becomes E4M3's, 448: 0 for a row of zeros, or of numbers so small that there is
/// no normal scale; they become 0. NaN for a row with an infinite number or NaN, all of whose results are NaN.
pub fn row_scale(row: &[f32]) -> f32 {
    // `max` leaves NaN out.
    let magnitude = |x: &f32| if x.is_nan() { f32::INFINITY } else { x.abs() };
    let scale = row.iter().map(magnitude).fold(0.0, f32::max) / Float8::E4M3.largest();
    if !scale.is_finite() {
        f32::NAN
    } else if scale < f32::MIN_POSITIVE {
        0.0
    } else {
        scale
    }
}

/// The number nearest to `x` that E4M3 represents with this scale. NaN stays NaN; with scale 0 all is 0.
pub fn round(x: f32, scale: f32) -> f32 {
    if scale == 0.0 {
        return 0.0;
    }
    // As GPUs do it: a multiplication by the reciprocal.
    let bits = Float8::E4M3.from_f32(x * (1.0 / scale), Overflow::Saturate);
    Float8::E4M3.to_f32(bits) * scale
}

/// All of `x`, rows of `channels`, [rounded](round).
pub fn rounded(x: &[f32], channels: usize, scale: Float8Scale) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    let (piece, fixed) = match scale {
        Float8Scale::Fixed(scale) => (PIECE, Some(scale)),
        Float8Scale::Row => (channels.max(1), None),
    };
    let pieces = y.par_chunks_mut(piece).zip(x.par_chunks(piece));
    pieces.for_each(|(y, x)| {
        let scale = fixed.unwrap_or_else(|| row_scale(x));
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = round(x, scale));
    });
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
        let fixed = Float8Scale::Fixed(scale);
        assert_eq!(
            rounded(&x, x.len(), fixed),
            [0.0, 1.0, -1.0, 1.125, 896.0, -896.0, 896.0]
        );
        assert!(round(f32::NAN, scale).is_nan());
        // Below 2^-6 there is one unit, 2^-9.
        assert_eq!(round(0.003, 1.0), 1.5f32.round_ties_even() / 512.0);
    }

    #[test]
    fn each_row_has_its_own_scale() {
        let x = [
            [1.0, -448.0, 0.26],
            [2.0, -896.0, 0.52],
            [0.0, -0.0, 0.0],
            [1e-38, -2e-38, 0.0],
            [1.0, f32::NAN, 2.0],
            [f32::INFINITY, 1.0, 2.0],
        ];
        let y = rounded(x.as_flattened(), 3, Float8Scale::Row);
        // Between 1/4 and 1/2 the unit is 1/32.
        assert_eq!(y[..3], [1.0, -448.0, 0.25]);
        assert_eq!(y[3..6], [2.0, -896.0, 0.5]);
        assert_eq!(y[6..12], [0.0; 6]);
        assert!(y[12..].iter().all(|y| y.is_nan()));
        assert_eq!(row_scale(&[]), 0.0);
    }
}
