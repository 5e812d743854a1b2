//! Converts image files to the input of vision models, bit for bit like the Python libraries.
//!
//! | item | equals |
//! | --- | --- |
//! | [`decode()`], [`open`] | Pillow's `Image.open(f).convert("RGB")` |
//! | [`resize`] | Pillow's `Image.resize` |
//! | [`Preprocess::from_timm`] | timm's evaluation transform |
//! | [`Preprocess::from_hf`] | Pillow-backed image processors of transformers |
//!
//! The crate depends on neither models nor devices.

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
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Pixels, `height × width × 3` bytes.
    pub data: Vec<u8>,
}

/// Lets functions accept images, references and smart pointers.
impl AsRef<RgbImage> for RgbImage {
    fn as_ref(&self) -> &RgbImage {
        self
    }
}

impl RgbImage {
    /// Creates an image from its pixels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if `data` does not have `height × width × 3` bytes, or if a side is 0.
    pub fn new(width: usize, height: usize, data: Vec<u8>) -> Result<Self> {
        let expected = width.checked_mul(height).and_then(|n| n.checked_mul(3));
        if width == 0 || height == 0 || expected != Some(data.len()) {
            let reason = format!("{} bytes are not {height} rows of {width} RGB pixels", data.len());
            return Err(Error::argument("image", reason));
        }
        Ok(Self { width, height, data })
    }
}
