//! Holds the samples of a row of MCUs, and the rows of its neighbours that interpolation needs.

use super::frame::{Component, Frame};
use super::idct::{self, Block};
use super::markers::Steps;

/// Sample rows of a component that are kept from the previous row of MCUs, as a multiple of its sampling factor.
///
/// Some rows must wait for the row below, and interpolating them needs the row above as well.
const KEPT: usize = 2;

/// Samples of a component.
pub(super) struct Plane {
    samples: Vec<u8>,
    stride: usize,
    /// Number of sample rows of a row of MCUs, and number of rows kept before it.
    rows: usize,
    kept: usize,
    /// Index of the current row of MCUs.
    mcu_row: usize,
    height: usize,
}

impl Plane {
    pub(super) fn new(component: &Component) -> Self {
        let stride = component.padded_wide * 8;
        let (rows, kept) = (8 * component.v, KEPT * component.v);
        Self {
            samples: vec![0; stride * (rows + kept)],
            stride,
            rows,
            kept,
            mcu_row: 0,
            height: component.height,
        }
    }

    /// Returns the number of bytes of a frame's planes.
    pub(super) fn bytes(frame: &Frame) -> u64 {
        let bytes = |component: &Component| component.padded_wide * 8 * (8 + KEPT) * component.v;
        frame
            .components
            .iter()
            .map(|component| bytes(component) as u64)
            .sum()
    }

    /// Advances to the next row of MCUs.
    pub(super) fn advance(&mut self) {
        self.samples.copy_within(self.stride * self.rows.., 0);
        self.mcu_row += 1;
    }

    /// Transforms a block at column `x` and row `y` of the row of MCUs. Coefficients after `last`, in file order, must
    /// be 0.
    #[inline(always)]
    pub(super) fn put(&mut self, x: usize, y: usize, block: &Block, last: usize) {
        let at = self.stride * (self.kept + 8 * y) + 8 * x;
        let Some(out) = self.samples.get_mut(at..) else {
            return;
        };
        match last {
            0 => idct::inverse_dc(block[0], out, self.stride),
            _ => idct::inverse(block, out, self.stride),
        }
    }

    /// Transforms a block like [`Plane::put`], after multiplying the coefficients by their quantisation steps.
    #[inline(always)]
    pub(super) fn put_scaled(&mut self, x: usize, y: usize, block: &Block, steps: &Steps) {
        let scaled: Block = std::array::from_fn(|i| block[i].wrapping_mul(steps[i]));
        let last = block[1..].iter().fold(0, |all, coefficient| all | coefficient);
        self.put(x, y, &scaled, usize::from(last != 0));
    }

    /// Returns a row of samples. A row outside of the image is replaced by the nearest row.
    #[inline(always)]
    pub(super) fn row(&self, row: isize) -> &[u8] {
        let row = row.clamp(0, self.height as isize - 1) as usize;
        let at = (row + self.kept - self.mcu_row * self.rows) * self.stride;
        &self.samples[at..at + self.stride]
    }
}
