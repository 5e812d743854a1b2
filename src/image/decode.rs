//! A file's bytes to RGB pixels, equal to those of Pillow's `Image.open(file).convert("RGB")`.
//!
//! The format is detected by content, never by name: PNG, JPEG, WebP, BMP, GIF (its first frame) and TIFF (its first page).
//! Each has a module that maps a maintained decoder's raw samples to RGB by Pillow's rules; only BMP is decoded here.
//! Alpha is dropped, not blended; a palette's or colour's transparency is ignored; 16-bit colours keep their high byte,
//! but 16-bit greys are clipped at 255, because that is what Pillow does with them. An EXIF orientation is not applied,
//! as neither Pillow nor timm nor transformers do, unless [`DecodeOptions`] ask for it; in TIFF it
//! always is, because Pillow itself turns the image there.
//!
//! Differences:
//! - JPEG differs from libjpeg-turbo by a few levels (inverse transform and chroma upsampling round differently),
//!   unless the feature `libjpeg-turbo` is on (which JPEGs inside TIFFs do not profit from); by more where chroma is
//!   at most two samples wide, which libjpeg does not interpolate.
//! - A JPEG whose entropy-coded data is damaged is an error here, while libjpeg may continue with a warning.
//! - Not supported: TIFFs in LAB, with 12-bit samples, with old-style JPEG or with CCITT Group 3 compression, and with
//!   YCbCr that is not JPEG; GIFs without any palette.
//! - Supported here, but not by Pillow: 4-bit BMPs with a palette of greys.

mod bmp;
mod color;
mod gif;
mod jpeg;
mod orientation;
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

/// How images are decoded. [`Limits`] convert into it, with the other options off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Which images are too large.
    pub limits: Limits,
    /// Whether JPEG, PNG and WebP images are turned as their EXIF orientation says, as image viewers do. Off by default,
    /// because timm and transformers ignore it.
    pub exif_orientation: bool,
}

impl DecodeOptions {
    /// With the EXIF orientation applied or not.
    pub fn exif_orientation(mut self, applied: bool) -> Self {
        self.exif_orientation = applied;
        self
    }
}

impl From<Limits> for DecodeOptions {
    fn from(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }
}

impl From<&Limits> for DecodeOptions {
    fn from(limits: &Limits) -> Self {
        (*limits).into()
    }
}

impl From<&Self> for DecodeOptions {
    fn from(options: &Self) -> Self {
        *options
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
        _ if is_tiff(bytes) => |bytes, limits, _| tiff::decode(bytes, limits),
        _ => {
            return Err(Failure::unsupported(
                "not a PNG, JPEG, WebP, BMP, GIF or TIFF image",
            ));
        }
    })
}

fn is_tiff(bytes: &[u8]) -> bool {
    matches!(bytes, [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..])
}

/// Decodes an image file's content. `name` stands for it in error messages.
///
/// # Errors
/// [`Error::Image`] if the content is in no supported format, is damaged or truncated, or exceeds the limits.
pub fn decode(name: &str, bytes: &[u8], options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    decode_in(name, bytes, options.into(), Vec::new())
}

/// As [`decode()`], with the pixels in `memory`, if the decoder can.
pub(crate) fn decode_in(
    name: &str,
    bytes: &[u8],
    options: DecodeOptions,
    memory: Vec<u8>,
) -> Result<RgbImage> {
    let decoded = decoder(bytes).and_then(|decode| {
        // A decoder that panics on some bytes has a bug, which should fail this image and not the process.
        catch_unwind(|| {
            let image = decode(bytes, &options.limits, memory)?;
            Ok(match options.exif_orientation && !is_tiff(bytes) {
                true => orientation::upright(image, orientation::stored(bytes)),
                false => image,
            })
        })
        .unwrap_or_else(|_| Err("the decoder failed on it".into()))
    });
    decoded.map_err(|failure| failure.of(name))
}

/// Reads and decodes an image. Of data that does not begin as an image, which may be endless, only the first bytes are read.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and [`Error::Image`] as [`decode()`] returns it; both with `name`.
pub fn read(name: &str, reader: impl Read, options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    read_in(name, reader, options.into(), &mut DecodeBuffers::default())
}

fn read_in(
    name: &str,
    mut reader: impl Read,
    options: DecodeOptions,
    buffers: &mut DecodeBuffers,
) -> Result<RgbImage> {
    let io = |source| Error::io(name, source);
    let bytes = &mut buffers.file;
    bytes.clear();
    let mut beginning = reader.by_ref().take(SIGNATURE);
    beginning.read_to_end(bytes).map_err(io)?;
    decoder(bytes).map_err(|failure| failure.of(name))?;
    reader.read_to_end(bytes).map_err(io)?;
    decode_in(name, bytes, options, std::mem::take(&mut buffers.pixels))
}

/// Reads and decodes an image file.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read, and [`Error::Image`] as [`decode()`] returns it.
pub fn open(path: impl AsRef<Path>, options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    open_in(path.as_ref(), options, &mut DecodeBuffers::default())
}

/// As [`open`], in memory that is used again.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn open_in(
    path: &Path,
    options: impl Into<DecodeOptions>,
    buffers: &mut DecodeBuffers,
) -> Result<RgbImage> {
    let file = File::open(path).map_err(|source| Error::io(path, source))?;
    read_in(&path.display().to_string(), file, options.into(), buffers)
}
