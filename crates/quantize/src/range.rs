//! Range of FP8 activations with a fixed scale: up to the largest magnitude, or clipped.
//!
//! Clipping uses a histogram of the magnitudes on the images, as the calibrators of TensorRT and NVIDIA Model
//! Optimizer do (<https://arxiv.org/abs/2004.09602>, section 3.2). Clipped values become the end of the
//! range; all other values get a finer scale.

use super::observation::observe;
use hipvit::error::{Error, Result};
use hipvit::float8::{Float8, Overflow};
use hipvit::graph::ValueId;
use hipvit::model::Model;

/// Largest representable magnitude of FP8 activations, determined on the calibration images.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum ActivationRange {
    /// Largest magnitude on the images.
    #[default]
    Largest,
    /// Percentile of the magnitudes on the images, above 0 and at most 100: 99.99 clips one of ten thousand
    /// values.
    Percentile(f64),
    /// Magnitude with the least mean square error on the images, between a sixteenth of the largest and the
    /// largest.
    MeanSquare,
}

impl ActivationRange {
    /// Fails for a percentile outside of 0 to 100.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Percentile(percentile) if !(percentile > 0.0 && percentile <= 100.0) => {
                Err(Error::argument(
                    "activation_range",
                    format_args!("is the percentile {percentile}. Use one above 0 and at most 100"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Returns the FP8 scale of each value. It maps the end of the value's range on the images to the maximum of E4M3.
    pub(super) fn steps(self, model: &Model, values: &[ValueId], images: &[Vec<u8>]) -> Result<Vec<f32>> {
        let mut largest = vec![0f32; values.len()];
        observe(model, values, images, |value, activations| {
            let largest = &mut largest[value];
            *largest = activations
                .iter()
                .fold(*largest, |largest, value| largest.max(value.abs()));
        })?;
        if self == Self::Largest {
            return Ok(largest.into_iter().map(step).collect());
        }
        let mut histograms: Vec<Histogram> = largest.into_iter().map(Histogram::new).collect();
        observe(model, values, images, |value, activations| {
            let histogram = &mut histograms[value];
            activations.iter().for_each(|value| histogram.add(value.abs()));
        })?;
        let end = |histogram: &Histogram| match self {
            Self::Largest => histogram.largest,
            Self::Percentile(percentile) => histogram.percentile(percentile),
            Self::MeanSquare => histogram.least_error(),
        };
        Ok(histograms.iter().map(end).map(step).collect())
    }
}

/// Returns the scale that maps `end` to the maximum of E4M3; 1 for zero.
pub(super) fn step(end: f32) -> f32 {
    let step = end / Float8::E4M3.largest();
    if step.is_normal() { step } else { 1.0 }
}

/// Counts of magnitudes in equal bins from 0 to the largest magnitude.
struct Histogram {
    largest: f32,
    counts: Vec<u64>,
}

impl Histogram {
    const BINS: usize = 4096;
    /// Number of candidate ends of the range per octave. The error of FP8 depends on the position of the end
    /// within an octave.
    const ENDS_PER_OCTAVE: i32 = 12;
    const OCTAVES: i32 = 4;

    fn new(largest: f32) -> Self {
        Self {
            largest,
            counts: vec![0; Self::BINS],
        }
    }

    fn add(&mut self, magnitude: f32) {
        // NaN, from a value or from a division by a largest magnitude of 0, becomes 0.
        let bin = (magnitude / self.largest * Self::BINS as f32) as usize;
        self.counts[bin.min(Self::BINS - 1)] += 1;
    }

    fn width(&self) -> f64 {
        f64::from(self.largest) / Self::BINS as f64
    }

    /// Returns the end of the first bin up to which the histogram contains `percentile` percent of the magnitudes.
    fn percentile(&self, percentile: f64) -> f32 {
        let all: u64 = self.counts.iter().sum();
        let mut below = 0;
        let bin = self.counts.iter().position(|count| {
            below += count;
            below as f64 >= all as f64 * percentile / 100.0
        });
        bin.map_or(self.largest, |bin| ((bin + 1) as f64 * self.width()) as f32)
    }

    /// Returns the end of the range with the least square error. Each magnitude counts as the middle of its bin.
    fn least_error(&self) -> f32 {
        let error = |end: f32| -> f64 {
            let step = step(end);
            let errors = self.counts.iter().enumerate().map(|(bin, &count)| {
                let middle = (bin as f64 + 0.5) * self.width();
                let bits = Float8::E4M3.from_f32(middle as f32 / step, Overflow::Saturate);
                let rounded = f64::from(Float8::E4M3.to_f32(bits) * step);
                count as f64 * (rounded - middle).powi(2)
            });
            errors.sum()
        };
        let end = |number: i32| self.largest * (-number as f32 / Self::ENDS_PER_OCTAVE as f32).exp2();
        let ends = (0..=Self::OCTAVES * Self::ENDS_PER_OCTAVE).map(end);
        ends.min_by(|a, b| error(*a).total_cmp(&error(*b)))
            .unwrap_or(self.largest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn histogram(magnitudes: &[f32]) -> Histogram {
        let mut histogram = Histogram::new(magnitudes.iter().fold(0f32, |a, b| a.max(*b)));
        magnitudes.iter().for_each(|magnitude| histogram.add(*magnitude));
        histogram
    }

    /// Returns the sum of the square errors of FP8 with this end of the range.
    fn error(magnitudes: &[f32], end: f32) -> f64 {
        let step = step(end);
        let errors = magnitudes.iter().map(|&x| {
            let bits = Float8::E4M3.from_f32(x / step, Overflow::Saturate);
            f64::from(Float8::E4M3.to_f32(bits) * step - x).powi(2)
        });
        errors.sum()
    }

    /// Returns some nine thousand magnitudes up to 1, and one of 100.
    fn with_an_outlier() -> Vec<f32> {
        let mut magnitudes: Vec<f32> = (1..=9999).map(|i| (i as f32 / 9999.0).powi(2)).collect();
        magnitudes.push(100.0);
        magnitudes
    }

    #[test]
    fn a_percentile_clips_the_values_above_it() {
        let histogram = histogram(&with_an_outlier());
        assert_eq!(histogram.percentile(100.0), 100.0);
        // One of ten thousand values is clipped: the part of width 100/4096 that contains 1 ends above 1.
        let clipped = histogram.percentile(99.99);
        assert!((1.0..1.0 + 100.0 / 4096.0).contains(&clipped), "{clipped}");
        // Half of the squares are below 1/4.
        let half = histogram.percentile(50.0);
        assert!((half - 0.25).abs() < 100.0 / 4096.0, "{half}");
    }

    #[test]
    fn the_least_error_is_not_above_that_of_the_largest_magnitude() {
        let uniform: Vec<f32> = (0..5000).map(|i| i as f32 / 4999.0).collect();
        let bell: Vec<f32> = (0..5000)
            .map(|i| (-(i as f32 / 1000.0).powi(2)).exp() * 3.7)
            .collect();
        for magnitudes in [uniform, bell, with_an_outlier()] {
            let histogram = histogram(&magnitudes);
            let end = histogram.least_error();
            let (found, whole) = (error(&magnitudes, end), error(&magnitudes, histogram.largest));
            // The histogram places magnitudes at the middles of their parts.
            assert!(found <= whole * 1.001, "{end}: {found} {whole}");
            // An outlier of 100 keeps its range: clipped to half, its error alone would be 2500.
            assert!(end >= 0.5 * histogram.largest, "{end} of {}", histogram.largest);
        }
    }

    #[test]
    fn zeros_have_a_step() {
        let zeros = histogram(&[0.0; 7]);
        for end in [zeros.percentile(99.9), zeros.least_error()] {
            assert_eq!(step(end), 1.0);
        }
    }

    #[test]
    fn a_percentile_beyond_the_values_is_refused() {
        for percentile in [0.0, -1.0, 100.5, f64::NAN] {
            let error = ActivationRange::Percentile(percentile).check().unwrap_err();
            assert!(error.to_string().contains("percentile"), "{error}");
        }
        ActivationRange::Percentile(100.0).check().unwrap();
    }
}
