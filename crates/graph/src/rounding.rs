//! Rounding of activations to 8 bits or bf16 before a matrix product.

use crate::float8::Float8Scale;

/// Rounding of x in a [`Linear`](crate::op::Linear).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    /// To int8.
    Int8(Levels),
    /// To FP8: E4M3 in OCP's encoding times a scale. The result is the number nearest to `x · (1/scale)`, ties to even, at most ±448. See
    /// [`float8`](crate::float8).
    Float8(Float8Scale),
    /// To bf16, to nearest, ties to even. Products are exact and summed in f32. GPUs compute the layer in the dtype of the activations
    /// instead, which is more accurate in f32 and f16.
    Bf16,
}

impl Rounding {
    /// Returns the fixed FP8 scale of x. `None` if there is no fixed scale.
    pub fn fixed_float8(self) -> Option<f32> {
        match self {
            Self::Float8(Float8Scale::Fixed(scale)) => Some(scale),
            _ => None,
        }
    }

    /// Returns true if each row is rounded with parameters stored beside it: computed from its elements, or fixed.
    pub fn is_of_rows(self) -> bool {
        match self {
            Self::Int8(_) | Self::Float8(Float8Scale::Row) => true,
            Self::Float8(Float8Scale::Fixed(_)) | Self::Bf16 => false,
        }
    }

    /// Returns true if the rounding is to 8 bits.
    pub fn is_to_8_bits(self) -> bool {
        match self {
            Self::Int8(_) | Self::Float8(_) => true,
            Self::Bf16 => false,
        }
    }

    /// Returns the bytes beside each row that is rounded by itself: the f32 scale for FP8, scale and zero point in f32 for int8.
    pub fn row_bytes(self) -> usize {
        match self {
            Self::Float8(Float8Scale::Fixed(_)) | Self::Bf16 => 0,
            Self::Float8(Float8Scale::Row) => size_of::<f32>(),
            Self::Int8(_) => 2 * size_of::<f32>(),
        }
    }
}

/// The 256 levels of int8 rounding: `x ≈ scale · (q − zero)` with q from 0 to 255.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Levels {
    /// Levels over the range of each row.
    #[default]
    Range,
    /// Levels over ± the largest magnitude of each row, with the zero point in the middle.
    Magnitude,
    /// Fixed levels. Values beyond them are clamped.
    Fixed {
        /// The step: a normal positive number.
        scale: f32,
        /// The zero point.
        zero: u8,
    },
}
