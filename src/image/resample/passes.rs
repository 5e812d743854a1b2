//! The two passes over the pixels. Plain loops over fixed-size blocks that the compiler vectorises; `rten_simd`
//! picks the widest instruction set of the machine at run time (AVX-512, AVX2, NEON, or the target's baseline).

use std::ops::Range;

use rten_simd::{Isa, SimdOp};

use super::coefficients::{Axis, PRECISION_BITS};

/// Half of one, added before the fraction is cut off.
const HALF: i32 = 1 << (PRECISION_BITS - 1);

fn to_u8(sum: i32) -> u8 {
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}

/// Resamples every row of `rows`: `[n, row_bytes]` to `[n, 3 × outputs]`.
pub(super) fn horizontal(rows: &[u8], row_bytes: usize, axis: &Axis) -> Vec<u8> {
    let lanes = LaneWeights::new(axis);
    let mut output = vec![0; rows.len() / row_bytes * axis.starts.len() * 3];
    Horizontal {
        rows,
        row_bytes,
        lanes: &lanes,
        output: &mut output,
    }
    .dispatch();
    output
}

/// Resamples the columns in `bytes` of the rows: `[n, row_bytes]` to `[outputs, bytes]`.
pub(super) fn vertical(rows: &[u8], row_bytes: usize, bytes: Range<usize>, axis: &Axis) -> Vec<u8> {
    let mut output = vec![0; axis.starts.len() * bytes.len()];
    Vertical {
        rows,
        row_bytes,
        bytes,
        axis,
        output: &mut output,
    }
    .dispatch();
    output
}

/// Bytes that one step of the horizontal pass multiplies: 8 pixels, a multiple of 3 channels and of 8 lanes.
const STEP: usize = 24;

/// The weights of a row, one for each byte instead of each pixel, in whole steps.
struct LaneWeights {
    /// `steps × STEP` weights for each output pixel.
    weights: Vec<i32>,
    /// The first byte of the row for each output pixel; whole steps from here stay inside a row of `row_bytes`.
    starts: Vec<usize>,
    steps: usize,
    /// The row's length that the starts assume: the real one, or longer if the row has less than `steps` steps.
    row_bytes: usize,
}

impl LaneWeights {
    fn new(axis: &Axis) -> Self {
        let most = axis.counts.iter().copied().max().unwrap_or(1);
        let steps = (most * 3).div_ceil(STEP);
        let span = steps * STEP;
        let row_bytes = (axis.input * 3).max(span);
        let mut weights = vec![0; axis.starts.len() * span];
        let mut starts = Vec::with_capacity(axis.starts.len());
        let pixels = axis
            .starts
            .iter()
            .zip(&axis.counts)
            .zip(axis.weights.chunks_exact(axis.taps));
        for (((&start, &count), from), to) in pixels.zip(weights.chunks_exact_mut(span)) {
            let first = (start * 3).min(row_bytes - span);
            let skipped = start * 3 - first;
            for (to, &weight) in to[skipped..].chunks_exact_mut(3).zip(&from[..count]) {
                to.fill(weight);
            }
            starts.push(first);
        }
        Self {
            weights,
            starts,
            steps,
            row_bytes,
        }
    }
}

struct Horizontal<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    lanes: &'a LaneWeights,
    output: &'a mut [u8],
}

impl SimdOp for Horizontal<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _isa: I) {
        let lanes = self.lanes;
        let rows = self.rows.chunks_exact(self.row_bytes);
        let outputs = self.output.chunks_exact_mut(lanes.starts.len() * 3);
        if lanes.row_bytes == self.row_bytes {
            for (row, output) in rows.zip(outputs) {
                horizontal_row(row, lanes, output);
            }
        } else {
            // An image narrower than one step is padded, so that a step can be read.
            let mut padded = vec![0; lanes.row_bytes];
            for (row, output) in rows.zip(outputs) {
                padded[..row.len()].copy_from_slice(row);
                horizontal_row(&padded, lanes, output);
            }
        }
    }
}

#[inline(always)]
fn horizontal_row(row: &[u8], lanes: &LaneWeights, output: &mut [u8]) {
    let span = lanes.steps * STEP;
    let pixels = output.chunks_exact_mut(3).zip(lanes.weights.chunks_exact(span));
    for ((pixel, weights), &start) in pixels.zip(&lanes.starts) {
        let mut sums = [0_i32; STEP];
        let steps = row[start..start + span]
            .chunks_exact(STEP)
            .zip(weights.chunks_exact(STEP));
        for (bytes, weights) in steps {
            for lane in 0..STEP {
                sums[lane] = sums[lane].wrapping_add(i32::from(bytes[lane]).wrapping_mul(weights[lane]));
            }
        }
        for (channel, value) in pixel.iter_mut().enumerate() {
            let sum = sums
                .iter()
                .skip(channel)
                .step_by(3)
                .fold(HALF, |sum, &lane| sum.wrapping_add(lane));
            *value = to_u8(sum);
        }
    }
}

struct Vertical<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    bytes: Range<usize>,
    axis: &'a Axis,
    output: &'a mut [u8],
}

/// Bytes of a row whose sums are held in registers at once.
const BLOCK: usize = 64;

impl SimdOp for Vertical<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _isa: I) {
        let Self {
            rows,
            row_bytes,
            bytes,
            axis,
            output,
        } = self;
        let positions = axis
            .starts
            .iter()
            .zip(&axis.counts)
            .zip(axis.weights.chunks_exact(axis.taps));
        for (output, ((&start, &count), weights)) in output.chunks_exact_mut(bytes.len()).zip(positions) {
            let rows = &rows[start * row_bytes..(start + count) * row_bytes];
            let weights = &weights[..count];
            let (mut blocks, mut at) = (output.chunks_exact_mut(BLOCK), bytes.start);
            for block in &mut blocks {
                vertical_block::<BLOCK>(rows, row_bytes, at, weights, block);
                at += BLOCK;
            }
            let mut blocks = blocks.into_remainder().chunks_exact_mut(8);
            for block in &mut blocks {
                vertical_block::<8>(rows, row_bytes, at, weights, block);
                at += 8;
            }
            for byte in blocks.into_remainder().chunks_exact_mut(1) {
                vertical_block::<1>(rows, row_bytes, at, weights, byte);
                at += 1;
            }
        }
    }
}

#[inline(always)]
fn vertical_block<const N: usize>(
    rows: &[u8],
    row_bytes: usize,
    at: usize,
    weights: &[i32],
    output: &mut [u8],
) {
    let mut sums = [HALF; N];
    for (row, &weight) in rows.chunks_exact(row_bytes).zip(weights) {
        let bytes = &row[at..at + N];
        for lane in 0..N {
            sums[lane] = sums[lane].wrapping_add(i32::from(bytes[lane]).wrapping_mul(weight));
        }
    }
    for (output, sum) in output.iter_mut().zip(sums) {
        *output = to_u8(sum);
    }
}
