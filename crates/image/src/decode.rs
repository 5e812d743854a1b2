//! Decodes image files to RGB pixels, equal to those of Pillow's `Image.open(file).convert("RGB")`.
//!
//! The format is detected by content, never by name: PNG, JPEG, WebP, BMP, GIF (first frame) and TIFF (first page).
//! Each format has a module that converts a maintained decoder's raw samples to RGB by Pillow's rules. BMP and JPEG
//! have decoders of their own here.
//!
//! Conversion follows Pillow:
//!
//! - Alpha is dropped, not blended. Transparency of a palette or colour is ignored.
//! - 16-bit colours keep their high byte, but 16-bit greys are clipped at 255.
//! - TIFF images are always rotated as their orientation says.
//! - An orientation in the EXIF data or XMP of other formats is applied only if [`DecodeOptions`] ask for it. Neither
//!   Pillow nor timm nor transformers apply it.
//!
//! A file whose last bytes are missing is decoded if all pixels are present.
//!
//! Images that Pillow shows but this crate rejects:
//!
//! - A JPEG without restart markers whose entropy-coded data is damaged. All pixels after the damage are lost, and
//!   libjpeg makes them up. Restart markers confine the damage, so such a file is decoded as libjpeg does.
//! - A JPEG whose entropy-coded data ends before the last pixel, or whose progressive scans lack bits. libjpeg fills or
//!   smooths what is missing.
//! - A JPEG that ends directly after its data, without EOI. Pillow rejects most of these, and shows one by chance.
//! - A JPEG with arithmetic coding, or a lossless JPEG.
//! - A TIFF in Lab, with 12-bit samples, with YCbCr that is not JPEG, or with old-style JPEG, CCITT Group 3 or modified
//!   Huffman compression.
//! - A PNG without the palette that it needs.
//!
//! Images that Pillow rejects but this crate decodes:
//!
//! - 4-bit BMPs with a palette of greys.
//! - Images with damaged metadata, if no pixel depends on it. An orientation that cannot be read is ignored.
//! - Uncompressed TIFFs with FillOrder 2 and 8-bit palette or inverted grey samples.
//!
//! Uncompressed TIFFs whose 16-bit samples are in separate planes are decoded differently. Pillow reads their bytes as
//! 8-bit samples.

mod bmp;
mod cancellation;
mod color;
mod device_image;
mod failure;
#[cfg(feature = "gif")]
mod gif;
mod ifd;
mod jpeg;
mod limits;
mod memory;
mod metadata;
mod orientation;
mod png;
mod system_memory;
#[cfg(test)]
mod tests;
#[cfg(feature = "tiff")]
mod tiff;
mod unsupported;
#[cfg(feature = "webp")]
mod webp;

use std::ffi::OsStr;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub use self::cancellation::Cancellation;
pub use self::device_image::{DeviceImage, decode_for_device, open_for_device};
use self::failure::Failure;
pub use self::jpeg::{JpegCoefficients, JpegColor, JpegGeometry, JpegPlane, JpegUpsampling};
pub use self::limits::Limits;
use self::memory::Claim;
pub use self::memory::Permit;
pub use self::memory::used as decode_memory;
use crate::error::{Error, Result};
use crate::rgb_image::RgbImage;
use hipvit_files::regular_file;

/// Options of decoding. Convertible from [`Limits`], with all other options off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Limits on the size of images and on memory.
    pub limits: Limits,
    /// If true, JPEG, PNG and WebP images are rotated as the orientation in their EXIF data or XMP says, as in image
    /// viewers.
    ///
    /// Off by default, because timm and transformers ignore the orientation.
    pub exif_orientation: bool,
}

impl DecodeOptions {
    /// Sets whether the EXIF orientation is applied.
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

/// Usual extensions of the names of images, in lower case.
pub const EXTENSIONS: [&str; 9] = ["png", "jpg", "jpeg", "jpe", "webp", "bmp", "gif", "tif", "tiff"];

/// Returns true if the file's name has an extension of images, in lower or upper case.
pub fn has_image_extension(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| {
        EXTENSIONS
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Decodes a file's content. Stores the pixels in the given vector if the decoder supports it.
type Decoder = fn(&[u8], &mut Claim<'_>, Vec<u8>) -> Result<RgbImage, Failure>;

/// Buffers that are reused from image to image. Allocators return large blocks to the system and request new pages each
/// time.
#[derive(Debug, Default)]
pub struct DecodeBuffers {
    /// Content of the file.
    pub file: Vec<u8>,
    /// Buffer that becomes the image's pixels.
    pub pixels: Vec<u8>,
    /// Buffer for the coefficients of a JPEG whose pixels a device computes.
    pub coefficients: Vec<u32>,
    /// Permit for the pixels of the last image, kept until the next image or until it is dropped.
    pub permit: Option<Permit>,
}

/// Returns the decoder for a file that begins with `bytes`.
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
        _ if is_webp(bytes) => return Err(missing_feature("WebP")),
        _ if is_gif(bytes) => return Err(missing_feature("GIF")),
        _ if is_tiff(bytes) => return Err(missing_feature("TIFF")),
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

/// Returns the error for a format whose cargo feature is turned off.
fn missing_feature(format: &str) -> Failure {
    Failure::unsupported(format!(
        "{format} images need hipvit's feature `{}`, which this build was made without",
        format.to_lowercase()
    ))
}

/// Decodes the content of an image file. Errors call the image `name`.
///
/// # Errors
///
/// Returns [`Error::Image`] if the content is in no supported format, is damaged or truncated, or exceeds the limits.
pub fn decode(name: &str, bytes: &[u8], options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    decode_in(name, bytes, options.into(), Vec::new()).map(|(image, _)| image)
}

/// Decodes like [`decode()`], and returns the permit for the pixels' memory too. Stores the pixels in `memory` if the
/// decoder supports it.
pub fn decode_in(
    name: &str,
    bytes: &[u8],
    options: DecodeOptions,
    memory: Vec<u8>,
) -> Result<(RgbImage, Option<Permit>)> {
    decode_unless(name, bytes, options, memory, Cancellation::never())
}

/// Decodes like [`decode_in`] until cancelled. Decoding then ends soon, with an error that does not describe the image.
pub fn decode_unless(
    name: &str,
    bytes: &[u8],
    options: DecodeOptions,
    memory: Vec<u8>,
    cancellation: Cancellation<'_>,
) -> Result<(RgbImage, Option<Permit>)> {
    let mut claim = Claim::new(&options.limits, bytes, cancellation);
    let decoded = decoder(bytes).and_then(|decode| {
        caught(|| {
            let orientation = transform(bytes, options, &mut claim)?;
            let image = decode(bytes, &mut claim, memory)?;
            Ok(orientation::upright(image, orientation))
        })
    });
    let image = decoded.map_err(|failure| failure.into_error(name))?;
    let permit = claim.into_permit(image.data.len() as u64);
    Ok((image, permit))
}

/// Calls a decoder. One that panics on some bytes has a bug, which fails this image, not the process.
fn caught<T>(decode: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err("the decoder failed".into()))
}

/// Returns the orientation to apply after decoding, and claims memory for that.
fn transform(bytes: &[u8], options: DecodeOptions, claim: &mut Claim<'_>) -> Result<u16, Failure> {
    // The TIFF decoder always applies the orientation.
    if !options.exif_orientation || is_tiff(bytes) {
        return Ok(1);
    }
    let orientation = orientation::stored(bytes, claim)?;
    if orientation::needs_transform(orientation) {
        claim.copy_pixels();
    }
    Ok(orientation)
}

/// Reads and decodes an image. Reads only the first bytes of data that does not begin like an image, because it may be
/// endless.
///
/// # Errors
///
/// Returns [`Error::Io`] if reading fails, and [`Error::Image`] if [`decode()`] does. Both contain `name`.
pub fn read(name: &str, reader: impl Read, options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    let options = options.into();
    let mut buffers = DecodeBuffers::default();
    read_bytes(name, reader, None, options, &mut buffers)?;
    decode(name, &buffers.file, options)
}

/// Reads an image of `length` bytes, if the length is known, into the buffer for the file's content.
fn read_bytes(
    name: &str,
    mut reader: impl Read,
    length: Option<u64>,
    options: DecodeOptions,
    buffers: &mut DecodeBuffers,
) -> Result<()> {
    let io = |source| Error::io(name, source);
    // Never block while holding a reservation (deadlock).
    buffers.permit = None;
    let bytes = &mut buffers.file;
    bytes.clear();
    let mut beginning = reader.by_ref().take(unsupported::PREFIX as u64);
    beginning.read_to_end(bytes).map_err(io)?;
    decoder(bytes).map_err(|failure| failure.into_error(name))?;
    let too_long = || {
        let reason = "the file is longer than the memory that decoding may take; Limits::max_memory or \
                      --max-decode-memory raises it";
        Failure::too_large(reason).into_error(name)
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
    Ok(())
}

/// Reads an image file into the buffer for its content. Returns its name.
fn read_file(path: &Path, options: DecodeOptions, buffers: &mut DecodeBuffers) -> Result<String> {
    let io = |source| Error::io(path, source);
    let file = regular_file::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let name = path.display().to_string();
    read_bytes(&name, file, Some(length), options, buffers)?;
    Ok(name)
}

/// Reads and decodes an image file.
///
/// # Errors
///
/// Returns [`Error::Io`] if the file cannot be read, and [`Error::Image`] if [`decode()`] does.
pub fn open(path: impl AsRef<Path>, options: impl Into<DecodeOptions>) -> Result<RgbImage> {
    open_in(path.as_ref(), options, &mut DecodeBuffers::default())
}

/// Reads and decodes an image file like [`open`], in reused buffers.
///
/// # Errors
///
/// Returns the errors of [`open`].
pub fn open_in(
    path: &Path,
    options: impl Into<DecodeOptions>,
    buffers: &mut DecodeBuffers,
) -> Result<RgbImage> {
    let options = options.into();
    let name = read_file(path, options, buffers)?;
    let memory = std::mem::take(&mut buffers.pixels);
    let (image, permit) = decode_in(&name, &buffers.file, options, memory)?;
    buffers.permit = permit;
    Ok(image)
}
