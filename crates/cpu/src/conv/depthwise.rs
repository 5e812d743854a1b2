//! Depthwise convolution: one channel of x for each channel of the result.
//!
//! A task copies the rows that some rows of the result need, with their padding, for one vector of channels after the other. The copy stays
//! in the L1 cache, where all windows read it.

use std::ops::Range;

use hipvit_graph::op::OpError;
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use super::super::rows::with_scratch;
use super::super::tail::Tail;
use super::in_blocks;
use super::patches::Patches;

/// Elements of the copy, with the widest vectors of 16 channels.
const COPY: usize = 8192;
const WIDEST: usize = 16;

pub(super) fn run(
    patches: &Patches<'_>,
    weight: &[f32],
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), OpError> {
    let channels = patches.channels.len();
    let [_, columns] = patches.result;
    let [down, across] = &patches.windows;
    let width = (columns - 1) * across.stride + reach(across.kernel, across.dilation);
    let lines = (COPY / WIDEST / width).saturating_sub(reach(down.kernel, down.dilation)) / down.stride + 1;
    // Weights in the order of the kernel, one vector of channels after the other.
    let mut taps = vec![0.0; weight.len()];
    let of_channel = weight.chunks_exact(patches.taps());
    for (channel, of_channel) in of_channel.enumerate() {
        let (chunk, at) = (channel / WIDEST * WIDEST, channel % WIDEST);
        let wide = WIDEST.min(channels - chunk);
        let taps = &mut taps[chunk * patches.taps()..];
        for (tap, &weight) in of_channel.iter().enumerate() {
            taps[tap * wide + at] = weight;
        }
    }
    in_blocks(channels, lines * columns, tail, out, |pixels, result| {
        let lines = pixels.start / columns..pixels.end / columns;
        let bias = tail.bias;
        let weight = &taps;
        let copied = (lines.len() - 1) * down.stride + reach(down.kernel, down.dilation);
        // A function between the dispatch and the instructions would keep them from being inlined.
        with_scratch(copied * width * WIDEST, |copy| {
            Lines {
                patches,
                weight,
                bias,
                width,
                lines,
                copy,
                result,
            }
            .dispatch();
        });
        Ok(())
    })
}

fn reach(kernel: usize, dilation: usize) -> usize {
    (kernel - 1) * dilation + 1
}

/// Computes some lines of the result, numbered through all images.
struct Lines<'a> {
    patches: &'a Patches<'a>,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    /// Pixels of a padded row of x.
    width: usize,
    lines: Range<usize>,
    /// Memory for the padded rows of x, for a vector of channels.
    copy: &'a mut [f32],
    result: &'a mut [f32],
}

impl SimdOp for Lines<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(mut self, isa: I) {
        let rows = self.patches.result[0];
        let of_line = self.patches.result[1] * self.patches.channels.len();
        let mut start = self.lines.start;
        while start < self.lines.end {
            let image = start / rows;
            let end = self.lines.end.min((image + 1) * rows);
            let (first, count) = (start % rows, end - start);
            let at = (start - self.lines.start) * of_line;
            self.of_image(isa, image, first..first + count, at);
            start = end;
        }
    }
}

impl Lines<'_> {
    /// Computes lines of one image to element `at` of the result.
    #[inline(always)]
    fn of_image<I: Isa>(&mut self, isa: I, image: usize, lines: Range<usize>, at: usize) {
        let ops = isa.f32();
        let lanes = ops.len();
        let [height, width, channels] = self.patches.image;
        let [_, columns] = self.patches.result;
        let [down, across] = &self.patches.windows;
        let kernel = [down.kernel, across.kernel];
        let x = &self.patches.x[image * height * width * channels..][..height * width * channels];
        let copied = (lines.len() - 1) * down.stride + reach(down.kernel, down.dilation);
        let line = self.width * lanes;
        let first = (lines.start * down.stride) as isize - down.padding[0] as isize;
        let result = &mut self.result[at..][..lines.len() * columns * channels];
        let copy = &mut self.copy[..copied * line];
        for start in (0..channels).step_by(lanes) {
            let n = lanes.min(channels - start);
            for (i, copy) in copy.chunks_exact_mut(line).enumerate() {
                let row = usize::try_from(first + i as isize)
                    .ok()
                    .filter(|&row| row < height);
                let row = row.map(|row| &x[row * width * channels..][..width * channels]);
                copy_line(isa, row, [across.padding[0], start, n, channels], copy);
            }
            let (chunk, within) = (start / WIDEST * WIDEST, start % WIDEST);
            let weights = Weights {
                taps: &self.weight[chunk * kernel[0] * kernel[1]..],
                step: WIDEST.min(channels - chunk),
                within,
                lanes: n,
            };
            let bias = match self.bias {
                Some(bias) => ops.load_pad(&bias[start..start + n]).0,
                None => ops.zero(),
            };
            for (i, result) in result.chunks_exact_mut(columns * channels).enumerate() {
                let copy = &copy[i * down.stride * line..];
                let mut column = 0;
                while column < columns {
                    let copy = &copy[column * across.stride * lanes..];
                    let result = &mut result[column * channels + start..];
                    let steps = [
                        line * down.dilation,
                        across.dilation * lanes,
                        across.stride * lanes,
                    ];
                    column += match columns - column {
                        left if left >= 7 => {
                            pixels::<I, 7>(isa, copy, &weights, kernel, steps, bias, (result, channels))
                        }
                        left if left >= 4 => {
                            pixels::<I, 4>(isa, copy, &weights, kernel, steps, bias, (result, channels))
                        }
                        left if left >= 2 => {
                            pixels::<I, 2>(isa, copy, &weights, kernel, steps, bias, (result, channels))
                        }
                        _ => pixels::<I, 1>(isa, copy, &weights, kernel, steps, bias, (result, channels)),
                    };
                }
            }
        }
    }
}

/// Weights of a vector of channels.
struct Weights<'a> {
    taps: &'a [f32],
    step: usize,
    within: usize,
    lanes: usize,
}

/// Copies `n` channels of a row of x, and zeros for its padding, as whole vectors.
#[inline(always)]
fn copy_line<I: Isa>(
    isa: I,
    row: Option<&[f32]>,
    [before, start, n, channels]: [usize; 4],
    copy: &mut [f32],
) {
    let ops = isa.f32();
    let Some(row) = row else {
        copy.fill(0.0);
        return;
    };
    let lanes = ops.len();
    let pixels = row.len() / channels;
    for (i, copy) in copy.chunks_exact_mut(lanes).enumerate() {
        let pixel = i.wrapping_sub(before);
        let vector = match row.get(pixel.wrapping_mul(channels)..) {
            Some(row) if pixel < pixels && n == lanes => ops.load(&row[start..]),
            Some(row) if pixel < pixels => ops.load_pad(&row[start..start + n]).0,
            _ => ops.zero(),
        };
        ops.store(vector, copy);
    }
}

/// Computes `N` adjacent pixels of the result for one vector of channels, and returns `N`. `steps` are the distances in the copy of kernel
/// rows, kernel columns and pixels.
#[inline(always)]
fn pixels<I: Isa, const N: usize>(
    isa: I,
    copy: &[f32],
    weights: &Weights<'_>,
    [rows, columns]: [usize; 2],
    [down, across, next]: [usize; 3],
    bias: I::F32,
    (result, channels): (&mut [f32], usize),
) -> usize {
    let ops = isa.f32();
    let mut sums = [bias; N];
    let mut tap = weights.within;
    for row in 0..rows {
        let copy = &copy[row * down..];
        for column in 0..columns {
            let copy = &copy[column * across..];
            let weight = if weights.lanes == ops.len() {
                ops.load(&weights.taps[tap..])
            } else {
                ops.load_pad(&weights.taps[tap..tap + weights.lanes]).0
            };
            tap += weights.step;
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = ops.mul_add(ops.load(&copy[i * next..]), weight, *sum);
            }
        }
    }
    for (i, sum) in sums.into_iter().enumerate() {
        let result = &mut result[i * channels..];
        if weights.lanes == ops.len() {
            ops.store(sum, result);
        } else {
            let mut values = [0.0; WIDEST];
            ops.store(sum, &mut values);
            result[..weights.lanes].copy_from_slice(&values[..weights.lanes]);
        }
    }
    N
}
