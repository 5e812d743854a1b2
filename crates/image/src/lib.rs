//! Converts image files to the input of vision models, bit for bit like the Python libraries.
//!
//! | item | equals |
//! | --- | --- |
//! | [`decode()`], [`open`] | Pillow's `Image.open(f).convert("RGB")` |
//! | [`encode_png`], [`encode_gray16_png`] | a PNG file with the same pixels |
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
mod encode;
mod error;
#[cfg(test)]
mod noise;
pub mod patch_grid;
mod preprocess;
mod resize;
mod rgb_image;
pub mod threads;

pub use decode::{
    Cancellation, DecodeBuffers, DecodeOptions, DeviceImage, EXTENSIONS, JpegCoefficients, JpegColor,
    JpegGeometry, JpegPlane, JpegUpsampling, Limits, Permit, decode, decode_for_device, decode_in,
    decode_memory, decode_unless, has_image_extension, open, open_for_device, open_in, read,
};
pub use encode::{encode_gray_png, encode_gray16_png, encode_png};
pub use error::{Error, ImageErrorKind, Result};
pub use preprocess::{
    Crop, Padding, Placement, Preprocess, Rescale, Resize, Rounding, Tiles, Tiling, TimmOptions, ValueRule,
};
pub use resize::{Axis, Filter, PRECISION_BITS, Pass, Resampling, Window, resize, resize_window};
pub use rgb_image::RgbImage;
