//! Limits on the resources of decoding.

use super::failure::Failure;
use super::system_memory::half_of_memory;

/// Limits on the resources of decoding. The header is checked before memory for the pixels is allocated.
///
/// ```
/// use hipvit_image::Limits;
///
/// let limits = Limits { max_pixels: 50_000_000, ..Limits::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of pixels (width × height).
    ///
    /// A strip or tile of a TIFF counts as at least 1,024 pixels, because each takes extra time.
    pub max_pixels: u64,
    /// Maximum number of bytes that all images being decoded in this process take together.
    ///
    /// Files, samples and pixels count, as estimated from the headers. An image that exceeds the limit alone is an
    /// error; otherwise images wait for each other.
    pub max_memory: u64,
}

impl Default for Limits {
    /// Returns the default limits.
    ///
    /// - 178,956,970 pixels (half a gigabyte of RGB), above which Pillow raises `DecompressionBombError`
    /// - half of the memory of the machine or container
    fn default() -> Self {
        Self {
            max_pixels: 178_956_970,
            max_memory: half_of_memory(),
        }
    }
}

/// Minimum number of pixels that a strip or tile of a TIFF counts as.
#[cfg(feature = "tiff")]
const CHUNK_PIXELS: u64 = 1024;

impl Limits {
    /// Returns the size as `usize`, or an error if it is empty or exceeds the limit.
    pub(super) fn check(
        &self,
        width: impl Into<u64>,
        height: impl Into<u64>,
    ) -> Result<(usize, usize), Failure> {
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

    /// Checks that the number of strips or tiles does not exceed the limit.
    #[cfg(feature = "tiff")]
    pub(super) fn check_chunks(&self, chunks: u64) -> Result<(), Failure> {
        let limit = self.max_pixels / CHUNK_PIXELS;
        // A few chunks are cheap, whatever the limit.
        if chunks <= limit.max(64) {
            return Ok(());
        }
        Err(Failure::too_large(format!(
            "{chunks} strips or tiles exceed the limit of {limit}; each counts as {CHUNK_PIXELS} pixels, and \
             Limits::max_pixels or --max-pixels raises their limit"
        )))
    }
}
