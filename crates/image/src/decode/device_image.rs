//! Decodes images for a device that computes the pixels of JPEGs.

use std::path::Path;

use super::cancellation::Cancellation;
use super::jpeg::{self, JpegCoefficients, JpegGeometry};
use super::memory::Claim;
use super::orientation;
use super::{DecodeBuffers, DecodeOptions, caught, decoder, read_file, transform};
use crate::error::Result;
use crate::rgb_image::RgbImage;

/// An image as decoded for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceImage {
    /// Pixels, computed by the host.
    Pixels(RgbImage),
    /// Coefficients of a JPEG, of which the device computes the pixels.
    Jpeg(JpegCoefficients),
}

impl DeviceImage {
    /// Returns width and height in pixels.
    pub fn size(&self) -> [usize; 2] {
        match self {
            Self::Pixels(image) => [image.width, image.height],
            Self::Jpeg(jpeg) => jpeg.geometry.size,
        }
    }

    /// Returns the geometry of a JPEG whose pixels the device computes.
    pub fn jpeg(&self) -> Option<JpegGeometry> {
        match self {
            Self::Pixels(_) => None,
            Self::Jpeg(jpeg) => Some(jpeg.geometry),
        }
    }

    /// Returns the bytes that the device needs.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Pixels(image) => &image.data,
            Self::Jpeg(jpeg) => bytemuck::cast_slice(jpeg.words()),
        }
    }

    /// Returns the number of bytes of memory that it takes.
    fn memory(&self) -> usize {
        match self {
            Self::Pixels(image) => image.data.len(),
            Self::Jpeg(jpeg) => jpeg.memory(),
        }
    }

    /// Returns the memory to the buffers that the next image uses.
    pub fn recycle(self, buffers: &mut DecodeBuffers) {
        match self {
            Self::Pixels(image) => buffers.pixels = image.data,
            Self::Jpeg(jpeg) => buffers.coefficients = jpeg.into_memory(),
        }
    }
}

impl From<RgbImage> for DeviceImage {
    fn from(image: RgbImage) -> Self {
        Self::Pixels(image)
    }
}

/// Decodes the content of an image file for a device, in the memory of `buffers`. Errors call the image `name`.
///
/// Grey, YCbCr and RGB JPEGs become coefficients, unless they must be rotated or memory is short. The pixels of these coefficients equal
/// those of [`decode_unless`](super::decode_unless), and it returns the same errors.
///
/// # Errors
///
/// Returns [`Error::Image`](crate::Error::Image) if the content is in no supported format, is damaged or truncated, or
/// exceeds the limits. An error after a cancellation does not describe the image.
pub fn decode_for_device(
    name: &str,
    bytes: &[u8],
    options: impl Into<DecodeOptions>,
    buffers: &mut DecodeBuffers,
    cancellation: Cancellation<'_>,
) -> Result<DeviceImage> {
    let options = options.into();
    // Never block while holding a reservation (deadlock).
    buffers.permit = None;
    let mut claim = Claim::new(&options.limits, bytes, cancellation);
    let decoded = decoder(bytes).and_then(|decode| {
        caught(|| {
            let orientation = transform(bytes, options, &mut claim)?;
            let is_jpeg = bytes.starts_with(&[0xFF, 0xD8, 0xFF]);
            if is_jpeg && !orientation::needs_transform(orientation) {
                let memory = (&mut buffers.coefficients, &mut buffers.pixels);
                return Ok(match jpeg::decode_for_device(bytes, &mut claim, memory)? {
                    jpeg::Decoded::Coefficients(coefficients) => DeviceImage::Jpeg(coefficients),
                    jpeg::Decoded::Pixels(image) => DeviceImage::Pixels(image),
                });
            }
            let image = decode(bytes, &mut claim, std::mem::take(&mut buffers.pixels))?;
            Ok(DeviceImage::Pixels(orientation::upright(image, orientation)))
        })
    });
    let image = decoded.map_err(|failure| failure.into_error(name))?;
    buffers.permit = claim.into_permit(image.memory() as u64);
    Ok(image)
}

/// Reads and decodes an image file like [`decode_for_device`], in reused buffers.
///
/// # Errors
///
/// Returns [`Error::Io`](crate::Error::Io) if the file cannot be read, and the errors of [`decode_for_device`].
pub fn open_for_device(
    path: &Path,
    options: impl Into<DecodeOptions>,
    buffers: &mut DecodeBuffers,
) -> Result<DeviceImage> {
    let options = options.into();
    let name = read_file(path, options, buffers)?;
    let file = std::mem::take(&mut buffers.file);
    let image = decode_for_device(&name, &file, options, buffers, Cancellation::never());
    buffers.file = file;
    image
}
