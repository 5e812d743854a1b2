//! Input of a graph.

use std::ops::Range;

use crate::dtype::DType;

/// The elements of an input of a graph. The first one has a batch of images, or activations.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// u8 pixels `[B,H,W,3]`.
    Pixels(&'a [u8]),
    /// Normalised f32 values `[B,3,H,W]`.
    Values(&'a [f32]),
    /// i32 integers, such as document ids.
    Integers(&'a [i32]),
}

impl Input<'_> {
    /// Returns the dtype of the matching graph input.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Pixels(_) => DType::U8,
            Self::Values(_) => DType::F32,
            Self::Integers(_) => DType::I32,
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Pixels(pixels) => pixels.len(),
            Self::Values(values) => values.len(),
            Self::Integers(values) => values.len(),
        }
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements `range`.
    ///
    /// # Panics
    ///
    /// Panics if the range is out of bounds.
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Pixels(pixels) => Self::Pixels(&pixels[range]),
            Self::Values(values) => Self::Values(&values[range]),
            Self::Integers(values) => Self::Integers(&values[range]),
        }
    }
}
