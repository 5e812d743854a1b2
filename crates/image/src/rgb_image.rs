//! The type of decoded and resized images.

use crate::error::{Error, Result};

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
