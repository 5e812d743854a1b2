//! From a file's bytes to the u8 pixels that a model sees: decoding, Pillow-exact resampling, and the resize and
//! crop rules of timm and of the Hugging Face processors. Knows no model and no device.

/// An 8-bit RGB image, rows from the top, three interleaved bytes a pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    /// Columns, in pixels.
    pub width: usize,
    /// Rows, in pixels.
    pub height: usize,
    /// `height × width × 3` bytes.
    pub data: Vec<u8>,
}
