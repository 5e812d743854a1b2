//! A file's bytes to RGB pixels, equal to those of Pillow's `Image.open(file).convert("RGB")`.
//!
//! The format is detected by content, never by name: PNG, JPEG, WebP, BMP, GIF (its first frame) and TIFF (its first page).
//! Each has a module that maps a maintained decoder's raw samples to RGB by Pillow's rules; BMP and JPEG are decoded here.
//! Alpha is dropped, not blended; a palette's or colour's transparency is ignored; 16-bit colours keep their high byte,
//! but 16-bit greys are clipped at 255, because that is what Pillow does with them. An orientation in EXIF data or XMP is
//! applied only if [`DecodeOptions`] ask for it, because neither Pillow nor timm nor transformers apply it. In TIFF it always is,
//! because Pillow itself turns the image.
//!
//! A file whose last bytes are missing is decoded if all pixels are there.
//!
//! Refused, though Pillow shows them:
//! - A JPEG without restart markers whose entropy-coded data is damaged: all pixels after the damage are lost. libjpeg makes
//!   them up. With restart markers damage is confined, and such a file is decoded as libjpeg does.
//! - A JPEG whose entropy-coded data ends before the last pixel, or whose progressive scans do not have all bits: libjpeg fills
//!   or smooths what is missing.
//! - A JPEG that ends directly behind its data, without EOI: Pillow refuses most of these, and shows one by chance.
//! - JPEGs with arithmetic coding, and lossless ones.
//! - TIFFs in Lab, with 12-bit samples, with old-style JPEG, CCITT Group 3 or modified Huffman compression, and with YCbCr that
//!   is not JPEG; PNGs without the palette that they need.
//!
//! Decoded, though Pillow refuses them:
//! - 4-bit BMPs with a palette of greys.
//! - Damaged metadata, as far as no pixel depends on it: an orientation that cannot be read is none.
//! - TIFFs without compression with FillOrder 2 and a palette or inverted greys of 8 bits.
//!
//! Decoded otherwise than Pillow: TIFFs without compression whose 16-bit samples are in planes of their own. Pillow takes their
//! bytes for 8-bit samples.

mod bmp;
mod cancellation;
mod color;
#[cfg(feature = "gif")]
mod gif;
mod ifd;
mod jpeg;
mod memory;
mod orientation;
mod png;
#[cfg(test)]
mod tests;
#[cfg(feature = "tiff")]
mod tiff;
mod unsupported;
#[cfg(feature = "webp")]
mod webp;

use std::borrow::Cow;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub use self::cancellation::Cancellation;
use self::memory::Claim;
pub use self::memory::Permit;
pub use self::memory::used as decode_memory;
use super::RgbImage;
use crate::error::{Error, ImageErrorKind, Result};
use hipvit_files::regular_file;

/// What decoding may take. An image's header is checked before memory for its pixels is allocated.
///
/// ```
/// use hipvit_image::Limits;
///
/// let limits = Limits { max_pixels: 50_000_000, ..Limits::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of pixels (width × height). A strip or tile of a TIFF counts as 1,024 pixels at least, because each
    /// takes time of its own.
    pub max_pixels: u64,
    /// Maximum number of bytes that all images that are being decoded in this process take together: their files, samples
    /// and pixels, as estimated from their headers. An image that takes more alone is an error; others wait for each other.
    pub max_memory: u64,
}

impl Default for Limits {
    /// 178,956,970 pixels, above which Pillow raises `DecompressionBombError` (half a gigabyte of RGB), and half of the
    /// memory of the machine or container.
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
            max_memory: memory::half_of_memory(),
        }
    }
}

/// Pixels that a strip or tile of a TIFF counts as at least.
const CHUNK_PIXELS: u64 = 1024;

/// How images are decoded. [`Limits`] convert into it, with the other options off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Which images are too large.
    pub limits: Limits,
    /// True if JPEG, PNG and WebP images are turned as the orientation in their EXIF data or XMP says, as image viewers do. Off
    /// by default, because timm and transformers ignore it.
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

impl Limits {
    /// The size as usable numbers.
    fn check(&self, width: impl Into<u64>, height: impl Into<u64>) -> Result<(usize, usize), Failure> {
        let (width, height) = (width.into(), height.into());
        if width == 0 || height == 0 {
            return Err(format!("the image is empty ({width}×{height} pixels)").into());
        }
        match width.checked_mul(height) {
            Some(pixels) if pixels <= self.max_pixels => Ok((width as usize, height as usize)),
            _ => Err(Failure::too_large(format!(
                "{width}×{height} pixels exceed the limit of {} (a decompression bomb?); \
                 Limits::max_pixels or --max-pixels raises it",
                self.max_pixels
            ))),
        }
    }

    /// Whether so many strips or tiles are not too much work.
    fn check_chunks(&self, chunks: u64) -> Result<(), Failure> {
        let limit = self.max_pixels / CHUNK_PIXELS;
        // A few are no work whatever the limit.
        if chunks <= limit.max(64) {
            return Ok(());
        }
        Err(Failure::too_large(format!(
            "{chunks} strips or tiles exceed the limit of {limit}; each counts as {CHUNK_PIXELS} pixels, and \
             Limits::max_pixels or --max-pixels raises their limit"
        )))
    }
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
type Decoder = fn(&[u8], &mut Claim<'_>, Vec<u8>) -> Result<RgbImage, Failure>;

/// Memory that is used for one image after the other: an allocator gives large blocks back to the system and asks for
/// new pages each time.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct DecodeBuffers {
    /// The file's content.
    pub file: Vec<u8>,
    /// Becomes the image's pixels.
    pub pixels: Vec<u8>,
    /// For the last image's pixels, until the next one or until it is dropped.
    pub permit: Option<Permit>,
}

/// The decoder for a file with this beginning.
fn decoder(bytes: &[u8]) -> Result<Decoder, Failure> {
    Ok(match bytes {
        [] => return Err(Failure::truncated("the file is empty")),
        [0x89, b'P', b'N', b'G', ..] => |bytes, claim, _| png::decode(bytes, claim),
        [0xFF, 0xD8, 0xFF, ..] => jpeg::decode,
        #[cfg(feature = "webp")]
        _ if is_webp(bytes) => |bytes, claim, _| webp::decode(bytes, claim),
        #[cfg(feature = "gif")]
        _ if is_gif(bytes) => |bytes, claim, _| gif::decode(bytes, claim),
        _ if unsupported::is_cr2(bytes) => return Err(unsupported::cr2()),
        #[cfg(feature = "tiff")]
        _ if is_tiff(bytes) => |bytes, claim, _| tiff::decode(bytes, claim),
        [b'B', b'M', ..] => |bytes, claim, _| bmp::decode(bytes, claim),
        _ if is_webp(bytes) => return Err(left_out("WebP")),
        _ if is_gif(bytes) => return Err(left_out("GIF")),
        _ if is_tiff(bytes) => return Err(left_out("TIFF")),
        _ => return Err(unsupported::failure(bytes)),
    })
}

fn is_webp(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..]
    )
}

fn is_gif(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GIF8")
}

fn is_tiff(bytes: &[u8]) -> bool {
    matches!(bytes, [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..])
}

/// A format whose decoder is a feature of this crate that was turned off.
fn left_out(format: &str) -> Failure {
    Failure::unsupported(format!(
        "{format} images need hipvit's feature `{}`, which this build was made without",
        format.to_lowercase()
    ))
}

/// Decodes an image file's content. `name` stands for it in error messages.
///
/// # Errors
/// [`Error::Image`] if the content is in no supported format, is damaged or truncated, or exceeds the limits.
pub fn decode(name: &str, bytes: &[u8], options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    decode_in(name, bytes, options.into(), Vec::new()).map(|(image, _)| image)
}

/// As [`decode()`], with the pixels in `memory`, if the decoder can; and the permit for the pixels' memory.
pub fn decode_in(
    name: &str,
    bytes: &[u8],
    options: DecodeOptions,
    memory: Vec<u8>,
) -> Result<(RgbImage, Option<Permit>)> {
    decode_unless(name, bytes, options, memory, Cancellation::never())
}

/// Decodes as [`decode_in`] does, until it is cancelled. Then decoding ends soon, and its error says nothing of the image.
pub fn decode_unless(
    name: &str,
    bytes: &[u8],
    options: DecodeOptions,
    memory: Vec<u8>,
    cancellation: Cancellation<'_>,
) -> Result<(RgbImage, Option<Permit>)> {
    let mut claim = Claim::new(&options.limits, bytes, cancellation);
    let decoded = decoder(bytes).and_then(|decode| {
        // A decoder that panics on some bytes has a bug, which should fail this image and not the process.
        catch_unwind(AssertUnwindSafe(|| {
            // TIFFs are turned in any case.
            let orientation = if options.exif_orientation && !is_tiff(bytes) {
                orientation::stored(bytes, &mut claim)?
            } else {
                1
            };
            if orientation::turns(orientation) {
                claim.copy_pixels();
            }
            let image = decode(bytes, &mut claim, memory)?;
            Ok(orientation::upright(image, orientation))
        }))
        .unwrap_or_else(|_| Err("the decoder failed on it".into()))
    });
    let image = decoded.map_err(|failure| failure.of(name))?;
    let permit = claim.into_permit(image.data.len() as u64);
    Ok((image, permit))
}

/// Reads and decodes an image. Of data that does not begin as an image, which may be endless, only the first bytes are read.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, and [`Error::Image`] as [`decode()`] returns it; both with `name`.
pub fn read(name: &str, reader: impl Read, options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    read_in(name, reader, None, options.into(), &mut DecodeBuffers::default())
}

/// `length` is the file's, if it is known.
fn read_in(
    name: &str,
    mut reader: impl Read,
    length: Option<u64>,
    options: DecodeOptions,
    buffers: &mut DecodeBuffers,
) -> Result<RgbImage> {
    let io = |source| Error::io(name, source);
    // Nobody may wait while holding memory.
    buffers.permit = None;
    let bytes = &mut buffers.file;
    bytes.clear();
    let mut beginning = reader.by_ref().take(unsupported::PREFIX as u64);
    beginning.read_to_end(bytes).map_err(io)?;
    decoder(bytes).map_err(|failure| failure.of(name))?;
    let too_long = || {
        let reason = "the file is longer than the memory that decoding may take; Limits::max_memory or \
                      --max-decode-memory raises it";
        Failure::too_large(reason).of(name)
    };
    if let Some(length) = length {
        if length > options.limits.max_memory {
            return Err(too_long());
        }
        let rest = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .saturating_sub(bytes.len());
        bytes.try_reserve_exact(rest).map_err(|error| io(error.into()))?;
    }
    let mut rest = reader.take(options.limits.max_memory.saturating_add(1));
    rest.read_to_end(bytes).map_err(io)?;
    if bytes.len() as u64 > options.limits.max_memory {
        return Err(too_long());
    }
    let (image, permit) = decode_in(name, bytes, options, std::mem::take(&mut buffers.pixels))?;
    buffers.permit = permit;
    Ok(image)
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
    let io = |source| Error::io(path, source);
    let file = regular_file::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    read_in(
        &path.display().to_string(),
        file,
        Some(length),
        options.into(),
        buffers,
    )
}
