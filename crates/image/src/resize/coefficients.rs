//! Computes the weights of one axis: which input pixels contribute to an output pixel, and by how much, in 22-bit fixed
//! point.

use std::f64::consts::PI;
use std::ops::Range;

use super::filter::Filter;

/// Number of fractional bits of a weight.
///
/// Two bits above the 8 of a pixel are left for partial sums of weights outside of 0 to 1.
pub const PRECISION_BITS: u32 = 32 - 8 - 2;

/// Weights of a range of output positions of one axis.
#[derive(Debug)]
pub struct Axis {
    /// Weights, `taps` for each output position. Weights beyond its count are zero.
    pub weights: Vec<i32>,
    /// First input position of each output position.
    pub starts: Vec<usize>,
    /// Number of input positions that contribute to each output position.
    pub counts: Vec<usize>,
    /// Number of weights per output position.
    pub taps: usize,
}

impl Axis {
    /// Computes the weights of the output positions `wanted` of an axis that goes from `input` to `output` pixels.
    pub(super) fn new(input: usize, output: usize, filter: Filter, wanted: Range<usize>) -> Self {
        let scale = input as f64 / output as f64;
        let filter_scale = scale.max(1.0);
        let support = support(filter) * filter_scale;
        let taps = support.ceil() as usize * 2 + 1;
        let inverse = 1.0 / filter_scale;

        let mut axis = Self {
            weights: vec![0; taps * wanted.len()],
            starts: Vec::with_capacity(wanted.len()),
            counts: Vec::with_capacity(wanted.len()),
            taps,
        };
        let mut exact = Vec::with_capacity(taps);
        for (position, fixed) in wanted.zip(axis.weights.chunks_exact_mut(taps)) {
            let center = (position as f64 + 0.5) * scale;
            // The cast to usize clamps negative floats to 0, as intended.
            let first = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(input);
            exact.clear();
            exact.extend((first..end).map(|at| weight(filter, (at as f64 - center + 0.5) * inverse)));
            let sum: f64 = exact.iter().sum();
            let divisor = if sum == 0.0 { 1.0 } else { sum };
            for (fixed, exact) in fixed.iter_mut().zip(&exact) {
                *fixed = to_fixed(exact / divisor);
            }
            axis.starts.push(first);
            axis.counts.push(exact.len());
        }
        axis
    }

    /// Restricts the input to the range that is used, and returns that range of the old input.
    pub(super) fn rebase(&mut self) -> Range<usize> {
        let start = self.starts.iter().copied().min().unwrap_or(0);
        let end = self
            .starts
            .iter()
            .zip(&self.counts)
            .map(|(start, count)| start + count)
            .max()
            .unwrap_or(0);
        self.starts.iter_mut().for_each(|at| *at -= start);
        start..end
    }
}

/// Scales, and rounds half away from zero. A cast truncates.
fn to_fixed(weight: f64) -> i32 {
    let scaled = weight * f64::from(1 << PRECISION_BITS);
    if weight < 0.0 {
        (scaled - 0.5) as i32
    } else {
        (scaled + 0.5) as i32
    }
}

fn support(filter: Filter) -> f64 {
    match filter {
        // Nearest has no weights. Its support is that of a box.
        Filter::Nearest | Filter::Box => 0.5,
        Filter::Bilinear | Filter::Hamming => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

/// Returns the filter's value at a distance of `x` input pixels (after scaling) from the centre.
pub(super) fn weight(filter: Filter, x: f64) -> f64 {
    match filter {
        Filter::Nearest | Filter::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
        Filter::Bilinear => (1.0 - x.abs()).max(0.0),
        Filter::Hamming => hamming(x.abs()),
        Filter::Bicubic => bicubic(x.abs()),
        Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        Filter::Lanczos => 0.0,
    }
}

fn hamming(x: f64) -> f64 {
    if x >= 1.0 {
        return 0.0;
    }
    if x == 0.0 {
        return 1.0;
    }
    // Pillow's constants are single precision, so their sum is not 1.
    sinc(x) * (f64::from(0.54_f32) + f64::from(0.46_f32) * (x * PI).cos())
}

fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}
