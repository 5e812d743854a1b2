//! From a file's bytes to u8 pixels of a model's size, and from those to its float input: decoding, Pillow-exact
//! resampling, and the resize and crop rules of timm and of the Hugging Face processors. Independent of models and
//! devices.
//!
//! The reference is Pillow: [`decode()`] equals `Image.open(f).convert("RGB")`, [`resize`] equals
//! `Image.resize`, and [`Preprocess`] equals timm's evaluation transform or a Pillow-backed image processor, each bit
//! for bit.

/// Compiles the Rust code in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod decode;
mod error;
#[cfg(test)]
mod noise;
pub mod patch_grid;
mod preprocess;
mod resize;
pub mod threads;

pub use decode::{
    Cancellation, DecodeBuffers, DecodeOptions, Limits, Permit, decode, decode_in, decode_memory,
    decode_unless, open, open_in, read,
};
pub use error::{Error, ImageErrorKind, Result};
pub use preprocess::{
    Crop, Padding, Placement, Preprocess, Rescale, Resize, Rounding, TimmOptions, ValueRule,
};
pub use resize::{Axis, Filter, PRECISION_BITS, Pass, Resampling, Window, resize, resize_window};

/// An 8-bit RGB image: rows from top to bottom, three interleaved bytes per pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    /// Columns, in pixels.
    pub width: usize,
    /// Rows, in pixels.
    pub height: usize,
    /// `height × width × 3` bytes.
    pub data: Vec<u8>,
}

/// So that functions take images and whatever refers to them.
impl AsRef<RgbImage> for RgbImage {
    fn as_ref(&self) -> &RgbImage {
        self
    }
}

impl RgbImage {
    /// An image from its pixels.
    ///
    /// # Errors
    /// [`Error::Argument`] if `data` does not hold `height × width × 3` bytes, or if a side is 0.
    pub fn new(width: usize, height: usize, data: Vec<u8>) -> Result<Self> {
        let expected = width.checked_mul(height).and_then(|n| n.checked_mul(3));
        if width == 0 || height == 0 || expected != Some(data.len()) {
            let reason = format!("{} bytes are not {height} rows of {width} RGB pixels", data.len());
            return Err(Error::argument("image", reason));
        }
        Ok(Self { width, height, data })
    }
}
