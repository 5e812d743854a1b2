//! Statistics of the times of runs.

use serde::Serialize;

/// Times of runs, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Number of measured runs.
    pub runs: usize,
    /// Mean time.
    pub mean_ms: f64,
    /// Shortest time.
    pub min_ms: f64,
    /// Median time.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Images per second at the median.
    pub images_per_s: f64,
}

impl Times {
    /// Computes the statistics of runs of `batch` images. `None` without runs.
    pub fn of(milliseconds: &[f64], batch: usize) -> Option<Self> {
        let mut sorted = milliseconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let p50_ms = percentile(&sorted, 50.0)?;
        Some(Self {
            runs: sorted.len(),
            mean_ms: sorted.iter().sum::<f64>() / sorted.len() as f64,
            min_ms: sorted[0],
            p50_ms,
            p90_ms: percentile(&sorted, 90.0)?,
            p99_ms: percentile(&sorted, 99.0)?,
            images_per_s: 1e3 * batch as f64 / p50_ms,
        })
    }
}

/// Returns the `p`-th percentile of sorted values, interpolated linearly as in NumPy's default. `None`
/// without values.
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let position = p / 100.0 * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * position.fract())
}

/// Returns the median of values in any order. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50.0)
}

/// Returns half the range of values relative to their median: the spread of repeated measurements. `None` for
/// fewer than two values.
pub fn noise(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    Some((highest - lowest) / 2.0 / median(values)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are from numpy.percentile.
    #[test]
    fn percentiles_are_those_of_numpy() {
        let values: Vec<f64> = [15.0, 20.0, 35.0, 40.0, 50.0].into();
        for (p, expected) in [
            (0.0, 15.0),
            (40.0, 29.0),
            (50.0, 35.0),
            (90.0, 46.0),
            (99.0, 49.6),
            (100.0, 50.0),
        ] {
            let got = percentile(&values, p).unwrap();
            assert!((got - expected).abs() < 1e-12, "p{p}: {got}, expected {expected}");
        }
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!(median(&[3.0, 1.0, 2.0, 10.0]), Some(2.5));
    }

    #[test]
    fn times_are_of_the_median() {
        let times = Times::of(&[4.0, 2.0, 3.0], 6).unwrap();
        assert_eq!(
            (times.runs, times.mean_ms, times.min_ms, times.p50_ms),
            (3, 3.0, 2.0, 3.0)
        );
        assert_eq!(times.images_per_s, 2000.0);
        assert_eq!(Times::of(&[], 1), None);
    }

    #[test]
    fn noise_is_half_the_range_over_the_median() {
        assert_eq!(noise(&[10.0, 11.0, 9.0]), Some(0.1));
        assert_eq!(noise(&[10.0]), None);
    }
}
