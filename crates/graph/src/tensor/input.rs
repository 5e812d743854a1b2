//! A model's input.

use std::ops::Range;

use super::DType;

/// A batch of images as a graph takes them, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// u8 pixels `[B,H,W,3]`.
    Pixels(&'a [u8]),
    /// Normalised f32 values `[B,3,H,W]`.
    Values(&'a [f32]),
}

impl Input<'_> {
    /// The element type of the graph input that this fits.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Pixels(_) => DType::U8,
            Self::Values(_) => DType::F32,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Pixels(pixels) => pixels.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements `range`, which are there.
    ///
    /// # Panics
    ///
    /// If they are not.
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Pixels(pixels) => Self::Pixels(&pixels[range]),
            Self::Values(values) => Self::Values(&values[range]),
        }
    }
}
