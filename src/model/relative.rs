//! Bias of attention's scores by relative position, as in BEiT.
//!
//! A table has a row for each distance between two patches, in rows and columns, and three rows for the class token. A
//! table for another grid is interpolated as in the library that wrote it.

use super::invalid::Invalid;
use super::positions::{self, Filter, Grid, Taps};
use crate::ops::RelativeBias;

/// Tables that a model has, and the grid that they are for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelativePositions {
    /// True if each block has a table.
    pub(super) own: bool,
    /// True if all blocks share a table, which is added to their own.
    pub(super) shared: bool,
    pub(super) fitting: TableFitting,
}

/// Rules by which a table is fitted to an image's grid.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableFitting {
    /// timm's `resize_rel_pos_bias_table`, which is from BEiT's `run_class_finetuning.py`. A table of another length is
    /// for a square grid.
    ///
    /// Interpolation is linear between distances that grow geometrically, so that small distances keep their values.
    Timm,
    /// transformers' rules: bilinear, from the configuration's grid. It confuses rows and columns of the table, which
    /// has no effect for a square grid.
    Transformers { configured: Grid },
}

/// Returns the op that makes the bias of a class token and the patches of a grid.
pub(super) fn relative_bias(grid: Grid) -> RelativeBias {
    RelativeBias {
        grid,
        class_token: true,
        shift: None,
    }
}

/// The elements of a table, a row per distance, and the grid that it was interpolated from, if any.
pub(super) type Fitted = (Vec<f32>, Option<Grid>);

impl TableFitting {
    /// Fits a stored table of `heads` columns to `grid`. Returns the reason if it cannot be fitted.
    pub(super) fn fit(self, stored: &[f32], heads: usize, grid: Grid) -> Result<Fitted, Invalid> {
        self.fit_with(stored, heads, relative_bias(grid))
    }

    /// Fits a stored table without rows of a class token to a window.
    pub(super) fn fit_windows(self, stored: &[f32], heads: usize, window: Grid) -> Result<Fitted, Invalid> {
        let op = RelativeBias {
            class_token: false,
            ..relative_bias(window)
        };
        self.fit_with(stored, heads, op)
    }

    /// Fits a stored table to that of an op.
    fn fit_with(self, stored: &[f32], heads: usize, op: RelativeBias) -> Result<Fitted, Invalid> {
        let grid = op.grid;
        let of_class_token = if op.class_token {
            RelativeBias::OF_CLASS_TOKEN
        } else {
            0
        };
        let rows = stored.len() / heads.max(1);
        let Some(cells) = rows.checked_sub(of_class_token).filter(|&cells| cells > 0) else {
            return Err(format!("has {rows} rows, too few for a relative position bias").into());
        };
        let to = op.distances();
        let from = match self {
            Self::Timm => {
                let side = cells.isqrt();
                match cells {
                    _ if side * side == cells && side % 2 == 1 => [side, side],
                    _ if cells == to[0] * to[1] => to,
                    _ => {
                        return Err(format!(
                            "has {rows} rows, which match neither a square grid nor the image's {}×{} patches",
                            grid[0], grid[1]
                        ).into());
                    }
                }
            }
            Self::Transformers { configured } => {
                let stored = RelativeBias {
                    grid: configured,
                    ..op
                };
                if rows != stored.table_rows() {
                    return Err(format!(
                        "has {rows} rows, but the configuration's {}×{} patches make it {}",
                        configured[0],
                        configured[1],
                        stored.table_rows()
                    )
                    .into());
                }
                let [down, across] = stored.distances();
                [across, down]
            }
        };
        if from == to {
            return Ok((stored.to_vec(), None));
        }
        let (distances, of_class_token) = stored.split_at(cells * heads);
        let taps = [0, 1].map(|axis| match self {
            Self::Timm => geometric(from[axis], to[axis]),
            Self::Transformers { .. } => positions::weights(from[axis], to[axis], Filter::Linear),
        });
        let mut table = positions::combine(distances, heads, from, to, &taps);
        table.extend(of_class_token);
        let stored_grid = match self {
            Self::Timm => from.map(|n| n.div_ceil(2)),
            Self::Transformers { configured } => configured,
        };
        Ok((table, Some(stored_grid)))
    }
}

/// Returns weights of `from` stored distances for each of `to` distances, −⌊to/2⌋ to ⌊to/2⌋.
///
/// The stored distances are at 0, ±1, ±(1 + q), ±(1 + q + q²) and so on. The factor q, from 1.01 to 1.5, is chosen so
/// that the last one is at ⌊to/2⌋. Beyond the last distance its value is repeated.
fn geometric(from: usize, to: usize) -> Taps {
    let (half, reach) = (from / 2, (to / 2) as f64);
    let sum = |q: f64| (1.0 - q.powi(half as i32)) / (1.0 - q);
    let (mut low, mut high, mut q) = (1.01, 1.5, 1.01);
    while high - low > 1e-6 {
        q = (low + high) / 2.0;
        if sum(q) > reach { high = q } else { low = q }
    }
    let mut places = vec![0.0];
    let mut place = 0.0;
    for exponent in 0..half {
        place += q.powi(exponent as i32);
        places.push(place);
        places.insert(0, -place);
    }
    (0..to)
        .map(|index| {
            let at = index as f64 - reach;
            let right = places.partition_point(|&place| place < at);
            if right == 0 || right == places.len() {
                return vec![(right.min(places.len() - 1), 1.0)];
            }
            let (before, after) = (places[right - 1], places[right]);
            let fraction = (at - before) / (after - before);
            vec![(right - 1, 1.0 - fraction), (right, fraction)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are from timm's `resize_rel_pos_bias_table`, which computes in f32, of squares for a grid of
    /// 3×3.
    #[test]
    fn a_table_is_interpolated_as_timm_does() {
        let squares: Vec<f32> = (0..28u8).map(|row| f32::from(row).powi(2) / 16.0).collect();
        let cases: [(Grid, &[f32]); 2] = [
            (
                [2, 5],
                &[
                    1.562_500_1,
                    1.5625,
                    1.791_666_4,
                    2.25,
                    3.0625,
                    4.0,
                    4.708_333_5,
                    5.0625,
                    5.0625,
                    6.25,
                    6.25,
                    6.687_499,
                    7.562_499_5,
                    9.0,
                    10.5625,
                    11.687_501,
                    12.25,
                    12.25,
                    14.0625,
                    14.0625,
                    14.708_332,
                    16.0,
                    18.0625,
                    20.25,
                    21.791_668,
                    22.5625,
                    22.5625,
                    39.0625,
                    42.25,
                    45.5625,
                ],
            ),
            ([1, 2], &[7.5625, 9.0, 10.5625, 39.0625, 42.25, 45.5625]),
        ];
        for (grid, expected) in cases {
            let (table, from) = TableFitting::Timm.fit(&squares, 1, grid).unwrap();
            assert_eq!(from, Some([3, 3]));
            assert_eq!(table.len(), expected.len());
            for (actual, expected) in table.iter().zip(expected) {
                assert!((actual - expected).abs() <= 1e-5, "{actual} {expected}");
            }
        }
        assert_eq!(
            TableFitting::Timm.fit(&squares, 1, [3, 3]),
            Ok((squares.clone(), None))
        );
        // 15 distances can only be of a grid of 2×3.
        let other = vec![1.0; 18];
        assert_eq!(
            TableFitting::Timm.fit(&other, 1, [2, 3]),
            Ok((other.clone(), None))
        );
        let error = TableFitting::Timm.fit(&other, 1, [3, 3]).unwrap_err();
        assert!(error.to_string().contains("3×3 patches"), "{error}");
    }

    /// Expected values are from transformers' `BeitRelativePositionBias` of a ramp for 2×3 patches. It treats the table
    /// as one of 5×3 distances.
    #[test]
    fn a_table_is_interpolated_as_transformers_does() {
        let ramp: Vec<f32> = (0..18u8).map(f32::from).collect();
        let fitting = TableFitting::Transformers { configured: [2, 3] };
        let (table, from) = fitting.fit(&ramp, 1, [2, 3]).unwrap();
        assert_eq!(from, Some([2, 3]));
        // The bias of the first patch, from that library: its distances to the class token and to the patches.
        let rows = [16, 7, 6, 5, 2, 1, 0].map(|row: usize| table[row]);
        for (actual, expected) in rows.iter().zip([16.0, 7.0, 6.4, 6.0, 2.0, 1.4, 1.0]) {
            assert!((actual - expected).abs() <= 1e-5, "{rows:?}");
        }
        let square = TableFitting::Transformers { configured: [2, 2] };
        assert_eq!(
            square.fit(&ramp[..12], 1, [2, 2]),
            Ok((ramp[..12].to_vec(), None))
        );
        assert!(square.fit(&ramp, 1, [2, 2]).is_err());
    }
}
