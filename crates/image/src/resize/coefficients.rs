//! The weights of one axis: which input pixels contribute to an output pixel, and by how much, in 22-bit fixed point.

use std::f64::consts::PI;
use std::ops::Range;

use super::Filter;

/// Fractional bits of a weight. Two bits above the 8 of a pixel are left for weights that sum to more than one or to
/// less than zero on part of their range.
pub const PRECISION_BITS: u32 = 32 - 8 - 2;

/// The weights of a range of output positions of one axis.
#[derive(Debug)]
pub struct Axis {
    /// Weights, `taps` for each output position; those after its count are zero.
    pub weights: Vec<i32>,
    /// The first input position of each output position.
    pub starts: Vec<usize>,
    /// The number of input positions that contribute to each output position.
    pub counts: Vec<usize>,
    /// Weights per output position.
    pub taps: usize,
}

impl Axis {
    /// The weights for the output positions `wanted` of an axis that goes from `input` to `output` pixels.
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
            // A negative float becomes 0 in a cast to usize, which is the clamp that is wanted here.
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

/// Rounds half away from zero, after scaling; a cast truncates.
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
        // Nearest has no weights; its half pixel is that of a box.
        Filter::Nearest | Filter::Box => 0.5,
        Filter::Bilinear | Filter::Hamming => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

/// The filter's value at `x` input pixels (after scaling) from the centre.
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
