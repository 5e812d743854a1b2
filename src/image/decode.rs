//! A file's bytes to RGB pixels, equal to those of Pillow's `Image.open(file).convert("RGB")`.
//!
//! The format is detected by content, never by name: PNG, JPEG, WebP, BMP, GIF (its first frame) and TIFF (its first page).
//! Each has a module that maps a maintained decoder's raw samples to RGB by Pillow's rules; BMP and JPEG are decoded here.
//! Alpha is dropped, not blended; a palette's or colour's transparency is ignored; 16-bit colours keep their high byte,
//! but 16-bit greys are clipped at 255, because that is what Pillow does with them. An EXIF orientation is not applied
//! (neither Pillow nor the usual pipelines do), except in TIFF, where Pillow itself turns the image.
//!
//! Differences:
//! - A JPEG whose entropy-coded data is damaged, or ends before the last pixel, is an error here, while libjpeg warns and
//!   makes up what is missing (Pillow refuses it only where the file itself ends). So is one whose progressive scans do not
//!   have all bits, which libjpeg smooths.
//! - JPEGs inside TIFFs differ by a few levels: the TIFF decoder's own JPEG decoder rounds differently.
//! - Not supported: JPEGs with arithmetic coding, and lossless ones.
//! - Not supported: TIFFs in LAB, with 12-bit samples, with old-style JPEG or with CCITT Group 3 compression, and with
//!   YCbCr that is not JPEG; GIFs without any palette.
//! - Supported here, but not by Pillow: 4-bit BMPs with a palette of greys.

mod bmp;
mod color;
mod gif;
mod jpeg;
mod png;
#[cfg(test)]
mod tests;
mod tiff;
mod webp;

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::panic::catch_unwind;
use std::path::Path;

use super::RgbImage;
use crate::error::{Error, ImageErrorKind, Result};

/// The maximum size of an image. Its header is checked before memory for pixels is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of pixels (width × height).
    pub max_pixels: u64,
}

impl Default for Limits {
    /// 178,956,970 pixels, above which Pillow raises `DecompressionBombError` (half a gigabyte of RGB).
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
        }
    }
}

impl Limits {
    /// The size as usable numbers.
    fn check(&self, width: impl Into<u64>, height: impl Into<u64>) -> Result<(usize, usize), Failure> {
        let (width, height) = (width.into(), height.into());
        if width == 0 || height == 0 {
            return Err(format!("the image is empty ({width}×{height} pixels)").into());
        }
        match width.checked_mul(height) {
            Some(pixels) if pixels <= self.max_pixels => match fits_into_memory(pixels) {
                true => Ok((width as usize, height as usize)),
                false => Err(Failure::too_large(format!(
                    "there is no memory for {width}×{height} pixels"
                ))),
            },
            _ => Err(Failure::too_large(format!(
                "{width}×{height} pixels exceed the limit of {} (a decompression bomb?)",
                self.max_pixels
            ))),
        }
    }
}

/// Whether this many RGB pixels can be allocated. Tried here, because a failed allocation later would abort the process.
fn fits_into_memory(pixels: u64) -> bool {
    let bytes = pixels
        .checked_mul(3)
        .and_then(|bytes| usize::try_from(bytes).ok());
    bytes.is_some_and(|bytes| {
        let mut trial: Vec<u8> = Vec::new();
        std::hint::black_box(&mut trial).try_reserve_exact(bytes).is_ok()
    })
}

/// Why an image cannot be decoded. Made from a text alone it is damage.
#[derive(Debug)]
struct Failure {
    kind: ImageErrorKind,
    reason: Cow<'static, str>,
}

impl Failure {
    const fn truncated(reason: &'static str) -> Self {
        Self {
            kind: ImageErrorKind::Truncated,
            reason: Cow::Borrowed(reason),
        }
    }

    fn unsupported(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: ImageErrorKind::Unsupported,
            reason: reason.into(),
        }
    }

    fn too_large(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: ImageErrorKind::TooLarge,
            reason: reason.into(),
        }
    }

    /// The error of the image called `name`. A decoder's message may span lines; an error is one line.
    fn of(self, name: &str) -> Error {
        let words: Vec<&str> = self.reason.split_whitespace().collect();
        Error::image(name, self.kind, words.join(" "))
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self {
            kind: ImageErrorKind::Damaged,
            reason: reason.into(),
        }
    }
}

impl From<&'static str> for Failure {
    fn from(reason: &'static str) -> Self {
        Self {
            kind: ImageErrorKind::Damaged,
            reason: reason.into(),
        }
    }
}

/// From a file's content to its pixels; where the format's decoder can, in the memory that is given to it.
type Decoder = fn(&[u8], &Limits, Vec<u8>) -> Result<RgbImage, Failure>;

/// Memory that is used for one image after the other: an allocator gives large blocks back to the system and asks for
/// new pages each time.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct DecodeBuffers {
    /// The file's content.
    pub file: Vec<u8>,
    /// Becomes the image's pixels.
    pub pixels: Vec<u8>,
}

/// The number of bytes at the beginning of a file that determine its format.
const SIGNATURE: u64 = 12;

/// The decoder for a file with this beginning.
fn decoder(bytes: &[u8]) -> Result<Decoder, Failure> {
    Ok(match bytes {
        [] => return Err(Failure::truncated("the file is empty")),
        [0x89, b'P', b'N', b'G', ..] => |bytes, limits, _| png::decode(bytes, limits),
        [0xFF, 0xD8, 0xFF, ..] => jpeg::decode,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
            |bytes, limits, _| webp::decode(bytes, limits)
        }
        [b'G', b'I', b'F', b'8', ..] => |bytes, limits, _| gif::decode(bytes, limits),
        [b'B', b'M', ..] => |bytes, limits, _| bmp::decode(bytes, limits),
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => {
            |bytes, limits, _| tiff::decode(bytes, limits)
        }
        _ => {
            return Err(Failure::unsupported(
                "not a PNG, JPEG, WebP, BMP, GIF or TIFF image",
            ));
        }
    })
}

/// Decodes an image file's content. `name` stands for it in error messages.
///
/// # Errors
/// [`Error::Image`] if the content is in no supported format, is damaged or truncated, or exceeds `limits`.
pub fn decode(name: &str, bytes: &[u8], limits: &Limits) -> Result<RgbImage> {
    decode_in(name, bytes, limits, Vec::new())
}

/// As [`decode()`], with the pixels in `memory`, if the decoder can.
pub(crate) fn decode_in(name: &str, bytes: &[u8], limits: &Limits, memory: Vec<u8>) -> Result<RgbImage> {
    decoder(bytes)
        // A decoder that panics on some bytes has a bug, which should fail this image and not the process.
        .and_then(|decode| {
            catch_unwind(|| decode(bytes, limits, memory))
                .unwrap_or_else(|_| Err("the decoder failed on it".into()))
        })
        .map_err(|failure| failure.of(name))
}

/// Reads and decodes an image. Of data that does not begin as an image, which may be endless, only the first bytes are read.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and [`Error::Image`] as [`decode()`] returns it; both with `name`.
pub fn read(name: &str, reader: impl Read, limits: &Limits) -> Result<RgbImage> {
    read_in(name, reader, limits, &mut DecodeBuffers::default())
}

fn read_in(
    name: &str,
    mut reader: impl Read,
    limits: &Limits,
    buffers: &mut DecodeBuffers,
) -> Result<RgbImage> {
    let io = |source| Error::io(name, source);
    let bytes = &mut buffers.file;
    bytes.clear();
    let mut beginning = reader.by_ref().take(SIGNATURE);
    beginning.read_to_end(bytes).map_err(io)?;
    decoder(bytes).map_err(|failure| failure.of(name))?;
    reader.read_to_end(bytes).map_err(io)?;
    decode_in(name, bytes, limits, std::mem::take(&mut buffers.pixels))
}

/// Reads and decodes an image file.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read, and [`Error::Image`] as [`decode()`] returns it.
pub fn open(path: impl AsRef<Path>, limits: &Limits) -> Result<RgbImage> {
    open_in(path.as_ref(), limits, &mut DecodeBuffers::default())
}

/// As [`open`], in memory that is used again.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn open_in(path: &Path, limits: &Limits, buffers: &mut DecodeBuffers) -> Result<RgbImage> {
    let file = File::open(path).map_err(|source| Error::io(path, source))?;
    read_in(&path.display().to_string(), file, limits, buffers)
}
