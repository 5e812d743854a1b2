//! Windows of an image as rows of a matrix.

use std::ops::Range;

use hipvit_graph::op::Windows;

/// Windows of images `[B,H,W,C]`.
#[derive(Clone)]
pub(super) struct Patches<'a> {
    pub(super) x: &'a [f32],
    pub(super) windows: [Windows; 2],
    /// Height, width and channels of x.
    pub(super) image: [usize; 3],
    /// Height and width of the result.
    pub(super) result: [usize; 2],
    /// Channels that are taken.
    pub(super) channels: Range<usize>,
}

impl Patches<'_> {
    /// Returns the pixels of a window.
    pub(super) fn taps(&self) -> usize {
        self.windows[0].kernel * self.windows[1].kernel
    }

    /// Fills the rows of `matrix` with the windows of these pixels of the result: kernel rows, kernel columns, channels.
    pub(super) fn fill(&self, pixels: Range<usize>, matrix: &mut [f32]) {
        let ([height, width, channels], [rows, columns]) = (self.image, self.result);
        let [down, across] = &self.windows;
        let depth = self.channels.len();
        let line = across.kernel * depth;
        let whole_runs = across.dilation == 1 && depth == channels;
        let patches = matrix.chunks_exact_mut(down.kernel * line);
        for (pixel, patch) in pixels.zip(patches) {
            let (row, column) = (pixel / columns % rows, pixel % columns);
            let image = &self.x[pixel / columns / rows * height * width * channels..];
            let taps = across.taps(column, width);
            for (tap, part) in patch.chunks_exact_mut(line).enumerate() {
                let Some(row) = down.at(row, tap, height) else {
                    part.fill(0.0);
                    continue;
                };
                let image = &image[row * width * channels..][..width * channels];
                part[..taps.start * depth].fill(0.0);
                part[taps.end * depth..].fill(0.0);
                let part = &mut part[taps.start * depth..taps.end * depth];
                let Some(first) = across.at(column, taps.start, width).filter(|_| !taps.is_empty()) else {
                    continue;
                };
                if whole_runs {
                    part.copy_from_slice(&image[first * channels..][..part.len()]);
                    continue;
                }
                for (i, part) in part.chunks_exact_mut(depth).enumerate() {
                    let start = (first + i * across.dilation) * channels + self.channels.start;
                    part.copy_from_slice(&image[start..start + depth]);
                }
            }
        }
    }
}
