//! Metrics by which rows are ranked, and their scores in f64.

use serde::Serialize;

/// A measure of how near a row is to a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Cosine of the angle between the vectors. The largest is the nearest. A vector of length 0 has the cosine 0.
    #[default]
    Cosine,
    /// Inner product. The largest is the nearest.
    InnerProduct,
    /// Euclidean distance. The smallest is the nearest.
    L2,
}

/// A row of an index that is near to a query.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hit {
    /// Index of the row, counted over all shards.
    pub row: usize,
    /// Cosine, inner product or distance.
    pub score: f64,
}

impl Metric {
    /// Returns the score of a row.
    pub(crate) fn score(self, query: &[f32], row: &[f32]) -> f64 {
        match self {
            Self::Cosine => {
                let lengths = (product(query, query) * product(row, row)).sqrt();
                if lengths == 0.0 {
                    0.0
                } else {
                    product(query, row) / lengths
                }
            }
            Self::InnerProduct => product(query, row),
            Self::L2 => {
                let squares = query.iter().zip(row).map(|(&a, &b)| {
                    let difference = f64::from(a) - f64::from(b);
                    difference * difference
                });
                squares.sum::<f64>().sqrt()
            }
        }
    }

    /// Sorts hits, the nearest first. Hits with equal scores are sorted by row.
    pub(crate) fn sort(self, hits: &mut [Hit]) {
        hits.sort_unstable_by(|a, b| {
            let by_score = match self {
                Self::L2 => a.score.total_cmp(&b.score),
                Self::Cosine | Self::InnerProduct => b.score.total_cmp(&a.score),
            };
            by_score.then(a.row.cmp(&b.row))
        });
    }
}

/// Returns the inner product in f64.
fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}
