//! Times of a whole model with packed and with dense weights.

use serde::{Deserialize, Serialize};

/// Number of turns. Each measures the model twice with packed weights and twice with dense weights.
const TURNS: usize = 7;

/// Times of a whole model with the chosen weights packed and with all weights dense, measured in turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholeModel {
    /// Batch size.
    pub images: usize,
    /// Median time with packed weights, in microseconds.
    pub packed_us: f64,
    /// Median time with dense weights, in microseconds.
    pub dense_us: f64,
    /// Gain of packed weights in microseconds: the median of the differences within a turn.
    pub gain_us: f64,
    /// Minimum gain that is significant, in microseconds.
    pub noise_us: f64,
}

impl WholeModel {
    /// Measures the model at a batch size. `time` returns the microseconds of a run; its argument is true for packed weights.
    ///
    /// # Errors
    ///
    /// The error of `time`.
    pub fn measure<E>(images: usize, mut time: impl FnMut(bool) -> Result<f64, E>) -> Result<Self, E> {
        let mut turns = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            // This order cancels a steady drift, such as that of a GPU that warms up.
            let [first, second, third, fourth] = [time(true)?, time(false)?, time(false)?, time(true)?];
            turns.push([f64::midpoint(first, fourth), f64::midpoint(second, third)]);
        }
        Ok(Self::of(images, &turns))
    }

    /// Summarises the turns. Each has a time with packed weights and one with dense weights.
    ///
    /// The noise is twice the median absolute deviation of the differences. For seven turns with normal errors, this is almost three
    /// standard errors of the median.
    pub(super) fn of(images: usize, turns: &[[f64; 2]]) -> Self {
        let gains: Vec<f64> = turns.iter().map(|[packed, dense]| dense - packed).collect();
        let gain = median(gains.iter().copied());
        let rounded = |us: f64| (us * 100.0).round() / 100.0;
        Self {
            images,
            packed_us: rounded(median(turns.iter().map(|turn| turn[0]))),
            dense_us: rounded(median(turns.iter().map(|turn| turn[1]))),
            gain_us: rounded(gain),
            noise_us: rounded(2.0 * median(gains.iter().map(|of| (of - gain).abs()))),
        }
    }

    /// Returns true if packed weights make the model faster by more than the noise.
    pub fn is_faster(&self) -> bool {
        self.gain_us > self.noise_us
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
