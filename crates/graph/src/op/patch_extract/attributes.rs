//! Attributes of patch extraction, and the order of its result.

use crate::op::{Normalize, PixelLayout};

/// Extracts patches as rows of a matrix for [`Linear`](crate::op::Linear). [`PixelLayout`] has the shapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatchExtract {
    /// Height and width of a patch, in pixels.
    pub patch: [usize; 2],
    /// Layout of the pixels, which also determines the order within a row of the result.
    pub layout: PixelLayout,
    /// Normalisation during extraction. `None` if it is folded into the weights.
    pub normalize: Option<Normalize>,
}

impl PatchExtract {
    /// Returns the channel and the index among all pixel elements, for element `e` of patch `p` of image `b`. Images have `[height, width]`
    /// pixels.
    pub(in crate::op) fn pixel(&self, [height, width]: [usize; 2], [b, p, e]: [usize; 3]) -> (usize, usize) {
        let [h, w] = self.patch;
        let (top, left) = (p / (width / w) * h, p % (width / w) * w);
        let (c, i, j) = match self.layout {
            PixelLayout::Hwc => (e % 3, e / 3 / w, e / 3 % w),
            PixelLayout::Chw => (e / (h * w), e / w % h, e % w),
        };
        let (row, column) = (top + i, left + j);
        let index = match self.layout {
            PixelLayout::Hwc => ((b * height + row) * width + column) * 3 + c,
            PixelLayout::Chw => ((b * 3 + c) * height + row) * width + column,
        };
        (c, index)
    }
}
