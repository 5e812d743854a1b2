//! Sliding windows over images `[B,H,W,C]`: their geometry, and the reference implementation of both convolutions.

use std::ops::Range;

use rayon::prelude::*;

use super::OpError;
use crate::array::{Array, Real};
use crate::matmul::{product, rows};

/// Sliding windows along one axis of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Elements of a window.
    pub kernel: usize,
    /// Distance of windows.
    pub stride: usize,
    /// Distance of a window's elements.
    pub dilation: usize,
    /// Elements of padding before and after the axis.
    pub padding: [usize; 2],
}

impl Windows {
    /// Returns the windows along height and width.
    pub(super) fn of(
        kernel: [usize; 2],
        stride: [usize; 2],
        dilation: [usize; 2],
        padding: [[usize; 2]; 2],
    ) -> [Self; 2] {
        [0, 1].map(|axis| Self {
            kernel: kernel[axis],
            stride: stride[axis],
            dilation: dilation[axis],
            padding: padding[axis],
        })
    }

    /// Returns the elements from the first to the last one of a window.
    fn reach(&self) -> Result<usize, OpError> {
        if self.kernel == 0 || self.stride == 0 || self.dilation == 0 {
            let Self {
                kernel,
                stride,
                dilation,
                ..
            } = self;
            let reason = format!("has a kernel of {kernel}, a stride of {stride}, a dilation of {dilation}");
            return Err(format!("{reason}. Each must be at least 1").into());
        }
        let reach = (self.kernel - 1).checked_mul(self.dilation);
        reach.and_then(|reach| reach.checked_add(1)).ok_or_else(overflow)
    }

    /// Returns the number of windows over `extent` elements. With `ceil`, the last window may end behind the padding, but starts in front of
    /// it.
    pub(super) fn count(&self, extent: usize, ceil: bool) -> Result<usize, OpError> {
        let [before, after] = self.padding;
        let reach = self.reach()?;
        let padded = extent.checked_add(before).and_then(|sum| sum.checked_add(after));
        let padded = padded.ok_or_else(overflow)?;
        let Some(free) = padded.checked_sub(reach) else {
            return Err(format!("has windows of {reach}, but only {padded} elements with padding").into());
        };
        if !ceil {
            return Ok(free / self.stride + 1);
        }
        let count = free.div_ceil(self.stride) + 1;
        let starts_in_padding = (count - 1) * self.stride >= extent + before;
        Ok(count - usize::from(starts_in_padding))
    }

    /// Checks that each window has an element of the image.
    pub(super) fn check_pool(&self) -> Result<(), OpError> {
        let reach = self.reach()?;
        match self.padding.iter().find(|&&padding| padding >= reach) {
            Some(padding) => Err(format!("has a padding of {padding} and windows of only {reach}").into()),
            None => Ok(()),
        }
    }

    /// Returns the result's extent of a transposed convolution.
    pub(super) fn transposed(&self, extent: usize, more: usize) -> Result<usize, OpError> {
        let reach = self.reach()?;
        let [before, after] = self.padding;
        let steps = extent.checked_sub(1).ok_or("has an empty image")?;
        let whole = steps.checked_mul(self.stride);
        let whole = whole.and_then(|whole| whole.checked_add(reach));
        let whole = whole
            .and_then(|whole| whole.checked_add(more))
            .ok_or_else(overflow)?;
        let kept = before
            .checked_add(after)
            .and_then(|padding| whole.checked_sub(padding));
        match kept {
            Some(kept @ 1..) => Ok(kept),
            _ => Err(format!("pads {before} and {after} elements of a result of {whole}").into()),
        }
    }

    /// Returns the position of element `tap` of window `index`. `None` if it is in the padding.
    pub fn at(&self, index: usize, tap: usize, extent: usize) -> Option<usize> {
        let at = (index * self.stride + tap * self.dilation).checked_sub(self.padding[0])?;
        (at < extent).then_some(at)
    }

    /// Returns the elements of window `index` that are not in the padding.
    pub fn taps(&self, index: usize, extent: usize) -> Range<usize> {
        let (start, before) = (index * self.stride, self.padding[0]);
        let first = before.saturating_sub(start).div_ceil(self.dilation);
        let end = (extent + before).saturating_sub(start).div_ceil(self.dilation);
        let end = end.min(self.kernel);
        first.min(end)..end
    }

    /// Returns the position that a transposed convolution multiplies by element `tap` of the kernel for element `index` of the result.
    pub fn transposed_at(&self, index: usize, tap: usize, extent: usize) -> Option<usize> {
        let at = (index + self.padding[0]).checked_sub(tap * self.dilation)?;
        let aligned = at.is_multiple_of(self.stride) && at / self.stride < extent;
        aligned.then_some(at / self.stride)
    }
}

pub(super) fn overflow() -> OpError {
    "has extents that overflow".into()
}

/// Returns a shape whose number of elements does not overflow.
pub(super) fn checked(shape: [usize; 4]) -> Result<Vec<usize>, OpError> {
    let elements = shape
        .iter()
        .try_fold(1usize, |all, &extent| all.checked_mul(extent));
    elements.map(|_| shape.to_vec()).ok_or_else(overflow)
}

/// A convolution, or the transpose of one.
pub(super) struct Convolution<P> {
    pub(super) kernel: [usize; 2],
    pub(super) groups: usize,
    /// Position of an element: `(axis, index of the result, index in the kernel, extent)`.
    pub(super) at: P,
}

/// Pixels that are computed at once.
const BLOCK: usize = 64;

impl<P: Fn(usize, usize, usize, usize) -> Option<usize> + Sync> Convolution<P> {
    /// Computes `y [B,h,w,K]` from `x [B,H,W,C]` and `weight [K,kh,kw,C/groups]`. `finish(pixel, values)` completes a pixel of the result.
    pub(super) fn compute<T: Real>(
        &self,
        x: &Array<T>,
        weight: &Array<T>,
        y: &mut Array<T>,
        finish: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let [_, height, width, channels] = x.extents();
        let [_, rows_of_y, columns, features] = y.extents();
        let [_, _, _, depth] = weight.extents();
        let length = self.kernel[0] * self.kernel[1] * depth;
        let of_group = features / self.groups;
        let (x, weight) = (x.values(), weight.values());
        let blocks = y
            .values_mut()
            .par_chunks_mut((BLOCK * features).max(1))
            .enumerate();
        blocks.for_each(|(block, y)| {
            let mut patches = vec![T::ZERO; y.len() / features * length];
            for group in 0..self.groups {
                for (i, patch) in patches.chunks_exact_mut(length).enumerate() {
                    let pixel = block * BLOCK + i;
                    let image = &x[pixel / columns / rows_of_y * height * width * channels..];
                    for (tap, element) in patch.chunks_exact_mut(depth).enumerate() {
                        let (down, across) = (tap / self.kernel[1], tap % self.kernel[1]);
                        let row = (self.at)(0, pixel / columns % rows_of_y, down, height);
                        let column = (self.at)(1, pixel % columns, across, width);
                        match row.zip(column) {
                            Some((row, column)) => {
                                let start = (row * width + column) * channels + group * depth;
                                element.copy_from_slice(&image[start..start + depth]);
                            }
                            None => element.fill(T::ZERO),
                        }
                    }
                }
                let weight = &weight[group * of_group * length..][..of_group * length];
                let sums = product(rows(&patches, length), rows(weight, length).reversed_axes());
                for (y, sums) in y.chunks_exact_mut(features).zip(sums.rows()) {
                    let y = &mut y[group * of_group..][..of_group];
                    y.iter_mut().zip(sums).for_each(|(y, &sum)| *y = sum);
                }
            }
            for (i, y) in y.chunks_exact_mut(features).enumerate() {
                finish(block * BLOCK + i, y);
            }
        });
    }
}
