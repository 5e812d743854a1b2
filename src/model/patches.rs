//! Resamples the weights of the patch projection for patches of another size, as timm's `resample_patch_embed` does.
//!
//! The new weights give for a resized patch what the stored weights give for the original patch. L. Beyer et al.,
//! *FlexiViT*, 2022, <https://arxiv.org/abs/2212.08013>.
//!
//! Resizing is linear and separable. The new weights are therefore the stored weights times the pseudoinverse of each
//! axis' resizing matrix.

use super::invalid::Invalid;
use super::positions::{self, Filter, Taps};

/// Maximum side of a patch that is resampled, in pixels.
const LARGEST_PATCH: usize = 256;

/// Resampling of weights from one patch size to another.
pub(super) struct Resampling {
    from: [usize; 2],
    to: [usize; 2],
    /// Pseudoinverse of each axis, as weights of the stored pixels for each new one.
    taps: [Taps; 2],
}

impl Resampling {
    /// Prepares the resampling of patches of `from` pixels to `to`. Returns the reason if it is impossible.
    pub(super) fn new(from: [usize; 2], to: [usize; 2], filter: Filter) -> Result<Self, Invalid> {
        let [[height, width], [to_height, to_width]] = [from, to];
        if from
            .iter()
            .chain(&to)
            .any(|side| !(1..=LARGEST_PATCH).contains(side))
        {
            return Err(format!(
                "has patches of {height}×{width}, which cannot be resampled to {to_height}×{to_width}"
            )
            .into());
        }
        // timm resizes patches without aligning corners, even if it aligns them for positions.
        let filter = match filter {
            Filter::LinearAligned => Filter::Linear,
            other => other,
        };
        let inverse = |axis: usize| {
            pseudoinverse(&dense(from[axis], to[axis], filter)).ok_or_else(|| {
                format!(
                    "has patches of {height}×{width}, and resizing them to {to_height}×{to_width} has no inverse"
                )
            })
        };
        Ok(Self {
            from,
            to,
            taps: [sparse(&inverse(0)?), sparse(&inverse(1)?)],
        })
    }

    /// Resamples weights, `[…, rows, columns]`.
    pub(super) fn apply(&self, weights: &[f32]) -> Vec<f32> {
        let planes = weights.chunks_exact(self.from[0] * self.from[1]);
        planes
            .flat_map(|plane| positions::combine(plane, 1, self.from, self.to, &self.taps))
            .collect()
    }
}

type Matrix = Vec<Vec<f64>>;

/// Returns the matrix that resizes `from` pixels to `to`, `[to, from]`.
fn dense(from: usize, to: usize, filter: Filter) -> Matrix {
    let rows = positions::weights(from, to, filter).into_iter();
    rows.map(|taps| {
        let mut row = vec![0.0; from];
        for (source, weight) in taps {
            row[source] += weight;
        }
        row
    })
    .collect()
}

/// Returns the stored pixels and their weights for each new pixel: the columns of the pseudoinverse, `[from, to]`.
fn sparse(inverse: &Matrix) -> Taps {
    transposed(inverse)
        .into_iter()
        .map(|column| column.into_iter().enumerate().collect())
        .collect()
}

/// Returns the pseudoinverse of a matrix of full rank, or `None` if its rank is lower.
fn pseudoinverse(matrix: &Matrix) -> Option<Matrix> {
    let transpose = transposed(matrix);
    if matrix.len() <= transpose.len() {
        // (A Aᵀ)⁻¹ A is the transpose of Aᵀ (A Aᵀ)⁻¹.
        Some(transposed(&solve(product(matrix, &transpose), matrix.clone())?))
    } else {
        solve(product(&transpose, matrix), transpose)
    }
}

fn transposed(matrix: &Matrix) -> Matrix {
    let columns = matrix.first().map_or(0, Vec::len);
    (0..columns)
        .map(|column| matrix.iter().map(|row| row[column]).collect())
        .collect()
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let columns = transposed(b);
    let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum();
    a.iter()
        .map(|row| columns.iter().map(|column| dot(row, column)).collect())
        .collect()
}

/// Solves `a · x = b` by Gaussian elimination with pivoting. Returns `None` if `a` is singular.
fn solve(mut a: Matrix, mut b: Matrix) -> Option<Matrix> {
    const SINGULAR: f64 = 1e-12;
    for column in 0..a.len() {
        let pivot = (column..a.len()).max_by(|&i, &j| a[i][column].abs().total_cmp(&a[j][column].abs()))?;
        if a[pivot][column].abs() < SINGULAR {
            return None;
        }
        a.swap(column, pivot);
        b.swap(column, pivot);
        let (pivot_a, pivot_b) = (a[column].clone(), b[column].clone());
        for row in (0..a.len()).filter(|&row| row != column) {
            let factor = a[row][column] / pivot_a[column];
            for (value, pivot) in a[row].iter_mut().zip(&pivot_a) {
                *value -= factor * pivot;
            }
            for (value, pivot) in b[row].iter_mut().zip(&pivot_b) {
                *value -= factor * pivot;
            }
        }
    }
    for (row, values) in b.iter_mut().enumerate() {
        let pivot = a[row][row];
        values.iter_mut().for_each(|value| *value /= pivot);
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_resampled_as_timm_does() {
        // timm.layers.resample_patch_embed(torch.arange(12.).square().reshape(1, 1, 3, 4), size, mode, antialias) in timm 1.0.31,
        // which computes in single precision.
        for (to, filter, expected) in CASES {
            let values: Vec<f32> = (0..12u8).map(|v| f32::from(v).powi(2)).collect();
            let resampled = Resampling::new([3, 4], *to, *filter).unwrap().apply(&values);
            assert_eq!(resampled.len(), expected.len());
            for (got, want) in resampled.iter().zip(*expected) {
                // Twelve products of up to 121, each rounded to f32 by timm, times the condition of the matrix.
                assert!((got - want).abs() < 2e-3, "{got} {want}");
            }
        }
        let error = Resampling::new([3, 4], [1000, 4], Filter::Linear).map(drop);
        assert_eq!(
            error.unwrap_err().to_string(),
            "has patches of 3×4, which cannot be resampled to 1000×4"
        );
    }

    const CASES: &[([usize; 2], Filter, &[f32])] = &[
        (
            [5, 6],
            Filter::CubicAntialiased,
            &[
                0.18073, 0.15489, 0.28558, 0.76144, 1.94177, 2.85604, 0.87261, 1.59415, 2.80881, 4.02868,
                6.17495, 7.73093, 4.27893, 6.39057, 9.60406, 12.15637, 15.97492, 18.6285, 17.96755, 21.61391,
                26.95353, 30.73634, 35.81901, 39.23522, 26.67113, 31.17759, 37.70034, 42.14774, 47.87831,
                51.67524,
            ],
        ),
        (
            [2, 2],
            Filter::CubicAntialiased,
            &[-17.64045, 6.02616, 172.52774, 313.5763],
        ),
        (
            [2, 6],
            Filter::CubicAntialiased,
            &[
                -5.47882, -5.0977, -4.07958, -2.31224, 1.5389, 4.45742, 52.98759, 63.37193, 78.49796,
                89.03088, 102.92476, 112.20549,
            ],
        ),
        (
            [5, 3],
            Filter::Linear,
            &[
                -0.86164, -0.7933, 3.52882, 1.20524, 6.65545, 12.3494, 4.3055, 17.82857, 25.58025, 34.76181,
                68.77315, 71.96928, 55.06599, 102.73616, 102.89528,
            ],
        ),
    ];
}
