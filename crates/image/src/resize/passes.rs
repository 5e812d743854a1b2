//! Runs the two passes over the pixels with one kernel, which computes output rows as weighted sums of input rows. The
//! horizontal pass transposes strips of rows for it.
//!
//! The kernel is a plain loop over fixed-size blocks that the compiler vectorises. At run time, `rten_simd` picks the
//! machine's widest instruction set (AVX-512, AVX2, NEON, or the target's baseline).

use std::ops::Range;

use rten_simd::{Isa, SimdOp};

use super::coefficients::{Axis, PRECISION_BITS};

/// Resamples every row: `[rows, inputs, 3]` to `[rows, outputs, 3]`.
pub(super) fn horizontal(input: &[u8], row_bytes: usize, axis: &Axis) -> Vec<u8> {
    let out_bytes = axis.starts.len() * 3;
    let mut output = vec![0; input.len() / row_bytes * out_bytes];
    let mut columns = vec![0; row_bytes * STRIP];
    let mut resampled = vec![0; out_bytes * STRIP];
    let strips = output
        .chunks_mut(out_bytes * STRIP)
        .zip(input.chunks(row_bytes * STRIP));
    for (output, input) in strips {
        transpose(input, row_bytes, &mut columns, STRIP * 3);
        let strip = STRIP * 3;
        WeightedRows {
            input: &columns,
            row_bytes: strip,
            bytes: 0..strip,
            axis,
            output: &mut resampled,
        }
        .dispatch();
        transpose(&resampled, strip, output, out_bytes);
    }
    output
}

/// Resamples the columns in `bytes`: `[inputs, row_bytes]` to `[outputs, bytes]`.
pub(super) fn vertical(input: &[u8], row_bytes: usize, bytes: Range<usize>, axis: &Axis) -> Vec<u8> {
    let mut output = vec![0; axis.starts.len() * bytes.len()];
    WeightedRows {
        input,
        row_bytes,
        bytes,
        axis,
        output: &mut output,
    }
    .dispatch();
    output
}

/// Number of rows that the horizontal pass handles at once.
const STRIP: usize = 16;

/// Transposes pixels of three bytes. Each matrix is given by its bytes and its row stride in bytes. Elements outside of
/// either matrix are skipped.
fn transpose(input: &[u8], input_row: usize, output: &mut [u8], output_row: usize) {
    /// Side of a tile in pixels. Tiles keep the scattered writes in the cache.
    const TILE: usize = 32;
    let columns = (input_row / 3).min(output.len() / output_row);
    for left in (0..columns).step_by(TILE) {
        let right = (left + TILE).min(columns);
        for (y, row) in input.chunks_exact(input_row).take(output_row / 3).enumerate() {
            let outputs = output[left * output_row..].chunks_mut(output_row);
            let (pixels, _) = row[left * 3..right * 3].as_chunks::<3>();
            for (pixel, to) in pixels.iter().zip(outputs) {
                if let Some(to) = to[y * 3..].first_chunk_mut::<3>() {
                    *to = *pixel;
                }
            }
        }
    }
}

/// Kernel in which every output row is a weighted sum of consecutive input rows. Only the columns in `bytes` are
/// computed.
struct WeightedRows<'a> {
    input: &'a [u8],
    row_bytes: usize,
    bytes: Range<usize>,
    axis: &'a Axis,
    output: &'a mut [u8],
}

/// Number of bytes of a row whose sums are kept in registers at once.
const BLOCK: usize = STRIP * 3;

impl SimdOp for WeightedRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _isa: I) {
        let Self {
            input,
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
            let rows = &input[start * row_bytes..(start + count) * row_bytes];
            let weights = &weights[..count];
            let (blocks, rest) = output.as_chunks_mut::<BLOCK>();
            let mut at = bytes.start;
            for block in blocks {
                *block = weighted_sum(rows, row_bytes, at, weights);
                at += BLOCK;
            }
            let (blocks, rest) = rest.as_chunks_mut::<8>();
            for block in blocks {
                *block = weighted_sum(rows, row_bytes, at, weights);
                at += 8;
            }
            for byte in rest {
                [*byte] = weighted_sum(rows, row_bytes, at, weights);
                at += 1;
            }
        }
    }
}

/// Computes `N` bytes of an output row: the sum over the rows of `weight × byte`, rounded and clipped.
#[inline(always)]
fn weighted_sum<const N: usize>(rows: &[u8], row_bytes: usize, at: usize, weights: &[i32]) -> [u8; N] {
    let mut sums = [1_i32 << (PRECISION_BITS - 1); N];
    for (row, &weight) in rows.chunks_exact(row_bytes).zip(weights) {
        let Some(bytes) = row[at..].first_chunk::<N>() else {
            break;
        };
        for (sum, &byte) in sums.iter_mut().zip(bytes) {
            *sum = sum.wrapping_add(i32::from(byte).wrapping_mul(weight));
        }
    }
    sums.map(|sum| (sum >> PRECISION_BITS).clamp(0, 255) as u8)
}
