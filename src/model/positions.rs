//! Interpolates position embeddings for a grid of patches other than the trained one, as PyTorch's `interpolate` does.
//!
//! The modes are bicubic and bilinear, with and without `antialias`, and bilinear with `align_corners`.
//!
//! Cubic convolution: R. Keys, *Cubic convolution interpolation for digital image processing*, 1981. Without
//! antialiasing, PyTorch uses a = −0.75. With antialiasing it uses Pillow's −0.5, and a kernel that widens as the grid
//! shrinks. The computation is in double precision; the result is rounded to f32 once.

use half::{bf16, f16};
use rayon::prelude::*;

use super::invalid::Invalid;
use crate::tensor::DType;

/// Rows and columns of patches.
pub(super) type Grid = [usize; 2];

/// Rules by which a library fits a stored table to an image.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fitting {
    /// timm's rules: a table of any length is resampled. Its grid is the configured one if the number of cells matches,
    /// otherwise a square.
    Timm {
        /// Grid of the checkpoint's configured image size.
        configured: Grid,
        /// Grid of the model, if it takes images of any size. The table is fitted to this grid first, then to the
        /// image.
        model: Option<Grid>,
        /// Bilinear for FlexiViT and RADIO, [`Filter::CubicAntialiased`] for all others.
        filter: Filter,
    },
    /// transformers' rules: the table must have as many cells as the configured grid. It is used unchanged, or treated
    /// as a square.
    Transformers {
        /// Grid of the configured image size.
        configured: Grid,
        /// True if the image has the configured size and the library then does not interpolate.
        keep: bool,
        /// True if the image is square. Only then does transformers keep a table of the right length.
        square_image: bool,
        filter: Filter,
    },
}

/// Positions that NaFlexViT stores as a grid: a table `[1, rows, columns, D]`, or the sum of one of rows, `[1, rows, D]`, and one of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct GridTable {
    pub(super) stored: Grid,
    pub(super) is_factorized: bool,
    /// True if both axes are scaled to the longer side of the image's grid, and the table is then cropped.
    pub(super) keeps_aspect: bool,
    /// True if the library samples the table at the patches of images in a batch of several grids.
    pub(super) is_sampled: bool,
    pub(super) filter: Filter,
}

impl GridTable {
    /// Interpolates the table to the grid of an image. Returns `None` if the library uses it unchanged.
    pub(super) fn fit(&self, table: &[f32], channels: usize, grid: Grid) -> Option<Vec<f32>> {
        if grid == self.stored && !self.is_factorized {
            return None;
        }
        let longest = grid[0].max(grid[1]);
        let taps = [0, 1].map(|axis| {
            let scaled = if self.keeps_aspect { longest } else { grid[axis] };
            let mut taps = weights(self.stored[axis], scaled, self.filter);
            taps.truncate(grid[axis]);
            taps
        });
        Some(combine(table, channels, self.stored, grid, &taps))
    }
}

/// Interpolation method of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Cubic,
    CubicAntialiased,
    Linear,
    LinearAntialiased,
    /// Bilinear with the first and the last cells of both grids at equal positions (`align_corners`).
    LinearAligned,
}

/// One interpolation of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resample {
    pub(super) from: Grid,
    pub(super) to: Grid,
    pub(super) filter: Filter,
    /// True if the library rounds the result to the type of the stored table, as it does at load.
    pub(super) rounds: bool,
}

/// Rounds values to the type in which a tensor is stored.
pub(crate) fn rounded(mut values: Vec<f32>, dtype: DType) -> Vec<f32> {
    match dtype {
        DType::F16 => values
            .iter_mut()
            .for_each(|value| *value = f16::from_f32(*value).to_f32()),
        DType::BF16 => values
            .iter_mut()
            .for_each(|value| *value = bf16::from_f32(*value).to_f32()),
        _ => {}
    }
    values
}

/// Computes positions `[rows · columns, channels]` from sines and cosines, as AIMv2 does.
///
/// A quarter of the channels each has sin(column · ω), cos(column · ω), sin(row · ω) and cos(row · ω). ω falls from 1
/// as 10000^(−i / (channels / 4)). The computation is in double precision, and the result is rounded to f32 once.
///
/// The method is from A. Vaswani et al., *Attention is all you need*, 2017. Two dimensions and this order are from
/// MAE's code, <https://arxiv.org/abs/2111.06377>.
pub(super) fn sinusoidal([rows, columns]: Grid, channels: usize) -> Vec<f32> {
    let quarter = channels / 4;
    let frequencies: Vec<f64> = (0..quarter)
        .map(|i| 10_000f64.powf(-(i as f64) / quarter as f64))
        .collect();
    let mut table = Vec::with_capacity(rows * columns * channels);
    for row in 0..rows {
        for column in 0..columns {
            for position in [column, row] {
                let angles = || frequencies.iter().map(|frequency| position as f64 * frequency);
                table.extend(angles().map(|angle| angle.sin() as f32));
                table.extend(angles().map(|angle| angle.cos() as f32));
            }
        }
    }
    table
}

impl Fitting {
    /// Returns the interpolations that convert a table of `cells` rows to one for `target`. An empty list keeps the
    /// table.
    ///
    /// Returns the reason if the table cannot be converted.
    pub(super) fn fit(self, cells: usize, target: Grid) -> Result<Vec<Resample>, Invalid> {
        match self {
            Self::Timm { .. } if cells == 0 => Err("has no positions of patches".into()),
            Self::Timm {
                configured,
                model,
                filter,
            } => {
                let known = Some(configured).filter(|grid| grid[0] * grid[1] == cells);
                let own = model.unwrap_or(target);
                let mut steps = Vec::new();
                if cells != own[0] * own[1] || known.is_some_and(|grid| grid != own) {
                    let from = known.map_or_else(|| square(cells), Ok)?;
                    steps.push(Resample {
                        from,
                        to: own,
                        filter,
                        rounds: true,
                    });
                }
                if own != target {
                    steps.push(Resample {
                        from: own,
                        to: target,
                        filter: Filter::CubicAntialiased,
                        rounds: false,
                    });
                }
                Ok(steps)
            }
            Self::Transformers {
                configured,
                keep,
                square_image,
                filter,
            } => {
                let [rows, columns] = configured;
                if cells != rows * columns {
                    return Err(format!(
                        "has {cells} positions, but the configuration makes it {rows}×{columns}"
                    )
                    .into());
                }
                if keep || (cells == target[0] * target[1] && square_image) {
                    return Ok(Vec::new());
                }
                let from = square(cells)?;
                Ok(vec![Resample {
                    from,
                    to: target,
                    filter,
                    rounds: false,
                }])
            }
        }
    }
}

fn square(cells: usize) -> Result<Grid, Invalid> {
    let side = cells.isqrt();
    if side * side == cells && side > 0 {
        Ok([side, side])
    } else {
        Err(
            format!("has {cells} positions, which do not form a square grid and cannot be interpolated")
                .into(),
        )
    }
}

/// Least numbers that a thread interpolates.
const LEAST_PART: usize = 1 << 14;

/// Inputs of each output, with their weights.
pub(super) type Taps = Vec<Vec<(usize, f64)>>;

/// Interpolates `table`, `[from.rows · from.columns, channels]`, to `[to.rows · to.columns, channels]`.
pub(super) fn resample(table: &[f32], channels: usize, from: Grid, to: Grid, filter: Filter) -> Vec<f32> {
    let taps = [0, 1].map(|axis| weights(from[axis], to[axis], filter));
    combine(table, channels, from, to, &taps)
}

/// Interpolates a map like PyTorch's `interpolate` with `mode="bicubic"`.
pub(crate) fn resample_cubic(map: &[f32], from: Grid, to: Grid) -> Vec<f32> {
    resample(map, 1, from, to, Filter::Cubic)
}

/// Interpolates like [`resample`], with the given weights of rows and columns.
pub(super) fn combine(
    table: &[f32],
    channels: usize,
    from: Grid,
    to: Grid,
    [vertical, horizontal]: &[Taps; 2],
) -> Vec<f32> {
    let width = (to[1] * channels).max(1);
    let least_rows = LEAST_PART.div_ceil(width);
    // Columns first, so that the larger pass runs over whole rows of the table.
    let mut wide = vec![0.0f64; from[0] * width];
    let rows = wide.par_chunks_exact_mut(width).with_min_len(least_rows);
    rows.zip(table.par_chunks_exact((from[1] * channels).max(1)))
        .for_each(|(wide, row)| {
            for (target, taps) in wide.chunks_exact_mut(channels.max(1)).zip(horizontal) {
                for &(source, weight) in taps {
                    for (sum, &value) in target.iter_mut().zip(&row[source * channels..][..channels]) {
                        *sum += weight * f64::from(value);
                    }
                }
            }
        });
    let mut result = vec![0.0; to[0] * width];
    let rows = result.par_chunks_exact_mut(width).with_min_len(least_rows);
    rows.zip(vertical).for_each_init(
        || vec![0.0f64; width],
        |sums, (row, taps)| {
            sums.fill(0.0);
            for &(source, weight) in taps {
                for (sum, value) in sums.iter_mut().zip(&wide[source * width..][..width]) {
                    *sum += weight * value;
                }
            }
            for (value, &sum) in row.iter_mut().zip(&*sums) {
                *value = sum as f32;
            }
        },
    );
    result
}

/// Returns the weights of an axis that goes from `from` inputs to `to` outputs.
pub(super) fn weights(from: usize, to: usize, filter: Filter) -> Taps {
    let scale = from as f64 / to as f64;
    (0..to)
        .map(|index| match filter {
            Filter::Cubic => interpolated(from, scale, index),
            Filter::CubicAntialiased => antialiased(from, scale, index, 2.0, |x: f64| cubic(x, -0.5)),
            Filter::LinearAntialiased => {
                antialiased(from, scale, index, 1.0, |x: f64| (1.0 - x.abs()).max(0.0))
            }
            Filter::Linear => linear(from, (scale * (index as f64 + 0.5) - 0.5).max(0.0)),
            Filter::LinearAligned => {
                let step = (from - 1) as f64 / to.saturating_sub(1).max(1) as f64;
                linear(from, step * index as f64)
            }
        })
        .collect()
}

/// Returns the two inputs around `centre`, which must not be before the first.
fn linear(from: usize, centre: f64) -> Vec<(usize, f64)> {
    let first = (centre as usize).min(from - 1);
    let fraction = centre - first as f64;
    vec![(first, 1.0 - fraction), ((first + 1).min(from - 1), fraction)]
}

/// Returns four taps around the centre. Those beyond the edge repeat it.
fn interpolated(from: usize, scale: f64, index: usize) -> Vec<(usize, f64)> {
    let centre = scale * (index as f64 + 0.5) - 0.5;
    let first = centre.floor() - 1.0;
    (0..4)
        .map(|tap| {
            let position = first + f64::from(tap);
            let source = position.clamp(0.0, (from - 1) as f64) as usize;
            (source, cubic(position - centre, -0.75))
        })
        .collect()
}

/// Returns all inputs under a kernel that extends `radius` cells of the coarser grid to each side, with normalised weights.
fn antialiased(
    from: usize,
    scale: f64,
    index: usize,
    radius: f64,
    kernel: impl Fn(f64) -> f64,
) -> Vec<(usize, f64)> {
    let widening = scale.max(1.0);
    let support = radius * widening;
    let centre = scale * (index as f64 + 0.5);
    let start = (centre - support + 0.5).max(0.0) as usize;
    let end = ((centre + support + 0.5) as usize).min(from);
    let mut taps: Vec<(usize, f64)> = (start..end)
        .map(|source| (source, kernel((source as f64 - centre + 0.5) / widening)))
        .collect();
    let total: f64 = taps.iter().map(|(_, weight)| weight).sum();
    for (_, weight) in &mut taps {
        *weight /= total;
    }
    taps
}

/// Returns the cubic convolution kernel at distance `x`.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_filter_equals_pytorch() {
        // torch.nn.functional.interpolate(torch.arange(12.).square().reshape(1, 1, 3, 4), size, mode=..., align_corners=...,
        // antialias=...) in double precision.
        let table: Vec<f32> = (0..12u8).map(|v| f32::from(v).powi(2)).collect();
        for (to, filter, expected) in CASES {
            let result = resample(&table, 1, [3, 4], *to, *filter);
            assert_eq!(result.len(), expected.len());
            for (got, want) in result.iter().zip(*expected) {
                // Tolerance: rounding of the result to f32, half a unit in the last place.
                assert!(
                    (f64::from(*got) - want).abs() <= want.abs() * f64::from(f32::EPSILON),
                    "{got} {want}"
                );
            }
        }
    }

    const FILTERS: [Filter; 5] = [
        Filter::Cubic,
        Filter::CubicAntialiased,
        Filter::Linear,
        Filter::LinearAntialiased,
        Filter::LinearAligned,
    ];

    const CASES: &[(Grid, Filter, &[f64])] = &[
        (
            [5, 3],
            Filter::Linear,
            &[
                0.166666666667,
                2.5,
                8.166666666667,
                7.1,
                13.7,
                23.633333333333,
                17.5,
                30.5,
                46.833333333333,
                47.1,
                66.5,
                89.233333333333,
                66.833333333333,
                90.5,
                117.5,
            ],
        ),
        (
            [2, 3],
            Filter::LinearAntialiased,
            &[7.2, 13.0, 21.6, 50.2, 68.0, 88.6],
        ),
        (
            [2, 7],
            Filter::LinearAligned,
            &[
                0.0, 0.5, 1.0, 2.5, 4.0, 6.5, 9.0, 64.0, 72.5, 81.0, 90.5, 100.0, 110.5, 121.0,
            ],
        ),
        (
            [5, 3],
            Filter::Cubic,
            &[
                -1.541453703704,
                -0.563,
                4.59137962963,
                3.162361111111,
                8.669,
                18.351564814815,
                17.100694444444,
                30.125,
                47.325231481481,
                48.319027777778,
                68.861,
                93.578898148148,
                70.814842592593,
                95.885,
                125.131083333333,
            ],
        ),
        (
            [5, 3],
            Filter::CubicAntialiased,
            &[
                -1.246707827814,
                0.245987855129,
                5.031734381072,
                4.003108029646,
                9.493523760508,
                18.276990334369,
                17.594965675057,
                30.359195402299,
                46.41647597254,
                50.530106902558,
                70.568150626179,
                93.8992451928,
                70.851733517551,
                94.887497289091,
                122.216311903631,
            ],
        ),
        (
            [2, 7],
            Filter::Cubic,
            &[
                1.686358304483,
                2.521344866071,
                4.114616549745,
                6.359375,
                9.582996424016,
                13.584431372996,
                16.17925758473,
                52.15274519406,
                57.884085163083,
                67.464282867165,
                77.515625,
                88.545830106596,
                100.534191075984,
                108.025370695153,
            ],
        ),
        (
            [2, 7],
            Filter::CubicAntialiased,
            &[
                3.396626898383,
                4.514025809112,
                6.82513437656,
                9.640048154093,
                13.136019921082,
                18.057857364847,
                20.700777102111,
                46.693947555254,
                51.601412727073,
                61.202686626654,
                70.378410914928,
                80.235193192658,
                92.447195968555,
                98.880181966909,
            ],
        ),
        ([1, 2], Filter::Cubic, &[19.46875, 43.53125]),
        (
            [1, 2],
            Filter::CubicAntialiased,
            &[31.03665109594, 51.127560186849],
        ),
    ];

    proptest! {
        #[test]
        fn the_same_grid_stays_and_a_constant_stays_constant(
            (rows, columns) in (1usize..9, 1usize..9),
            (to_rows, to_columns) in (1usize..12, 1usize..12),
            filter in prop::sample::select(FILTERS.to_vec()),
        ) {
            let table: Vec<f32> = (0..rows * columns * 2).map(|v| (v as f32).sin()).collect();
            prop_assert_eq!(&resample(&table, 2, [rows, columns], [rows, columns], filter), &table);
            let flat = vec![1.5f32; rows * columns * 2];
            for value in resample(&flat, 2, [rows, columns], [to_rows, to_columns], filter) {
                prop_assert!((value - 1.5).abs() <= 1.5 * f32::EPSILON);
            }
        }
    }

    fn resample_step(from: Grid, to: Grid, filter: Filter, rounds: bool) -> Resample {
        Resample {
            from,
            to,
            filter,
            rounds,
        }
    }

    #[test]
    fn timm_keeps_resamples_and_refuses() {
        let fitting = |model| Fitting::Timm {
            configured: [3, 6],
            model,
            filter: Filter::Linear,
        };
        let step = |from, to| resample_step(from, to, Filter::Linear, true);
        let when_run = |from, to| resample_step(from, to, Filter::CubicAntialiased, false);
        assert_eq!(fitting(None).fit(18, [3, 6]), Ok(vec![]));
        assert_eq!(fitting(None).fit(18, [6, 3]), Ok(vec![step([3, 6], [6, 3])]));
        assert_eq!(fitting(None).fit(16, [4, 4]), Ok(vec![]));
        assert_eq!(fitting(None).fit(16, [5, 9]), Ok(vec![step([4, 4], [5, 9])]));
        assert!(fitting(None).fit(15, [5, 9]).is_err());
        let dynamic = fitting(Some([6, 6]));
        assert_eq!(
            dynamic.fit(18, [2, 4]),
            Ok(vec![step([3, 6], [6, 6]), when_run([6, 6], [2, 4])])
        );
        assert_eq!(dynamic.fit(36, [2, 4]), Ok(vec![when_run([6, 6], [2, 4])]));
        assert_eq!(dynamic.fit(16, [6, 6]), Ok(vec![step([4, 4], [6, 6])]));
    }

    #[test]
    fn transformers_keeps_a_table_of_the_right_length_for_square_images_only() {
        let fitting = |keep, square_image| Fitting::Transformers {
            configured: [4, 4],
            keep,
            square_image,
            filter: Filter::Cubic,
        };
        let resampled = Ok(vec![resample_step([4, 4], [2, 8], Filter::Cubic, false)]);
        assert_eq!(fitting(true, false).fit(16, [4, 4]), Ok(vec![]));
        assert_eq!(fitting(false, true).fit(16, [4, 4]), Ok(vec![]));
        assert_eq!(fitting(false, false).fit(16, [2, 8]), resampled);
        assert!(fitting(false, false).fit(17, [2, 8]).is_err());
    }
}
