//! Rounding to int8: the levels of rows of activations and of weights.
//!
//! A level q of a row is the number `scale · (q − zero)`. Executors compute the scales in f32, so that all of them round the same way.
//! Weights are rounded before they are stored, [`round_weight`]; activations when a linear layer multiplies them.

use rayon::prelude::*;

use crate::rounding::Levels;

/// Largest level of a weight. The levels are symmetric, so that −w is rounded like w.
pub const LARGEST_WEIGHT: f32 = 127.0;

/// Levels of an operand of linear layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Int8Grid {
    /// The 256 levels of activations.
    Activations(Levels),
    /// Levels from −127 to 127 over ± the largest magnitude of each row, without a zero point.
    Weights,
}

/// Levels of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowGrid {
    /// Distance between two levels. 0 for a row of zeros, or of numbers so small that no normal scale exists; NaN for a row with NaN or
    /// infinity.
    pub scale: f32,
    /// Level of 0.
    zero: f32,
    /// Smallest and largest level.
    ends: [f32; 2],
    /// True if numbers are multiplied by the reciprocal of the scale, false if they are divided by the scale.
    by_reciprocal: bool,
}

impl RowGrid {
    /// Returns the levels of a row.
    #[must_use]
    pub fn of(row: impl IntoIterator<Item = f32>, grid: Int8Grid) -> Self {
        let (mut low, mut high, mut is_finite) = (0f32, 0f32, true);
        for x in row {
            is_finite &= x.is_finite();
            (low, high) = (low.min(x), high.max(x));
        }
        let largest = high.max(-low);
        let scale = match grid {
            _ if !is_finite => f32::NAN,
            Int8Grid::Activations(Levels::Range) => high / 255.0 - low / 255.0,
            Int8Grid::Activations(Levels::Magnitude) => largest / 127.5,
            Int8Grid::Activations(Levels::Fixed { scale, .. }) => scale,
            Int8Grid::Weights => largest / LARGEST_WEIGHT,
        };
        let scale = if scale < f32::MIN_POSITIVE { 0.0 } else { scale };
        let zero = match grid {
            Int8Grid::Activations(Levels::Range) => -(low * (1.0 / scale)).round_ties_even(),
            Int8Grid::Activations(Levels::Magnitude) => 128.0,
            Int8Grid::Activations(Levels::Fixed { zero, .. }) => f32::from(zero),
            Int8Grid::Weights => 0.0,
        };
        let ends = match grid {
            Int8Grid::Activations(_) => [0.0, 255.0],
            Int8Grid::Weights => [-LARGEST_WEIGHT, LARGEST_WEIGHT],
        };
        Self {
            scale,
            zero,
            ends,
            by_reciprocal: grid == Int8Grid::Activations(Levels::Range),
        }
    }

    /// Returns true if the scale is a normal number. Otherwise all numbers of the row become 0 or NaN.
    fn is_normal(&self) -> bool {
        self.scale >= f32::MIN_POSITIVE
    }

    /// Returns the level next to `x`, which may be beyond the ends.
    fn unclamped(&self, x: f32) -> f32 {
        let steps = if self.by_reciprocal {
            x * (1.0 / self.scale)
        } else {
            x / self.scale
        };
        steps.round_ties_even() + self.zero
    }

    /// Returns the level of `x`, minus that of 0.
    #[must_use]
    pub fn level(&self, x: f32) -> f32 {
        if !self.is_normal() {
            return 0.0;
        }
        let [low, high] = self.ends;
        self.unclamped(x).clamp(low, high) - self.zero
    }

    /// Returns true if the level next to `x` is beyond the ends. PyTorch's `fake_quantize` then has the gradient 0.
    #[must_use]
    pub fn clips(&self, x: f32) -> bool {
        let [low, high] = self.ends;
        let level = self.unclamped(x);
        self.is_normal() && (level < low || level > high)
    }
}

/// Rounds the rows of a weight, with `columns` elements each, to [`Int8Grid::Weights`]. Returns the levels, and the scale of each row. A row of
/// zeros has the scale 1.
#[must_use]
pub fn round_weight(values: &[f32], columns: usize) -> (Vec<i8>, Vec<f32>) {
    let columns = columns.max(1);
    let mut levels = vec![0; values.len()];
    let rows = values.par_chunks(columns).zip(levels.par_chunks_mut(columns));
    let scales = rows.map(|(row, levels)| {
        let grid = RowGrid::of(row.iter().copied(), Int8Grid::Weights);
        for (level, &x) in levels.iter_mut().zip(row) {
            *level = grid.level(x) as i8;
        }
        if grid.scale == 0.0 { 1.0 } else { grid.scale }
    });
    let scales = scales.collect();
    (levels, scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_rounded_to_symmetric_levels() {
        let (levels, scales) = round_weight(&[127.0, -63.5, 0.4, -0.6, 0.0, -0.0, 0.0, 1e-40], 4);
        assert_eq!(levels, [127, -64, 0, -1, 0, 0, 0, 0]);
        assert_eq!(scales, [1.0, 1.0]);
    }

    #[test]
    fn rows_without_a_normal_scale_become_zero_or_nan() {
        let range = Int8Grid::Activations(Levels::Range);
        for grid in [range, Int8Grid::Activations(Levels::Magnitude), Int8Grid::Weights] {
            let tiny = RowGrid::of([1e-39, -1e-39], grid);
            assert_eq!((tiny.scale, tiny.level(1e-39)), (0.0, 0.0));
            assert!(!tiny.clips(1e-39));
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let row = RowGrid::of([1.0, value], grid);
                assert!(row.scale.is_nan() && !row.clips(1.0), "{grid:?} of {value}");
            }
        }
    }
}
