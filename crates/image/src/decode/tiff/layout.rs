//! Layout of a page in strips or tiles.

use std::borrow::Cow;
use std::io::Cursor;

use ::tiff::ColorType;
use ::tiff::decoder::{ChunkType, Decoder};
use ::tiff::tags::Tag;

use crate::decode::cancellation::Interruptible;
use crate::decode::failure::Failure;

/// Maximum ratio of pixels in the tiles to pixels of the image.
const MAX_STORED: u64 = 10;

/// Number of pixels that the tiles of any image may have.
const FREE_STORED: u64 = 1 << 26;

/// Decoder of a TIFF whose reader can be cancelled.
pub(super) type Source<'a> = Decoder<Interruptible<'a, Cursor<Cow<'a, [u8]>>>>;

/// Layout of a page in strips or tiles.
pub(super) struct Layout {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) channels: usize,
    /// Number of bytes of a sample.
    pub(super) depth: usize,
    pub(super) planar: bool,
    pub(super) tiled: bool,
    /// Width and height of a strip or tile.
    pub(super) chunk: [usize; 2],
}

/// Size that a strip or tile stores.
pub(super) struct Stored {
    pub(super) width: usize,
    pub(super) height: usize,
    /// True if additional rows are harmless.
    pub(super) may_be_higher: bool,
}

impl Layout {
    pub(super) fn read(
        decoder: &mut Source<'_>,
        width: usize,
        height: usize,
        color: ColorType,
    ) -> Result<Self, Failure> {
        let planar = matches!(
            decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration),
            Ok(Some(2))
        );
        let (chunk_width, chunk_height) = decoder.chunk_dimensions();
        if chunk_width == 0 || chunk_height == 0 {
            return Err("the TIFF's strips or tiles are empty".into());
        }
        Ok(Self {
            width,
            height,
            channels: usize::from(color.num_samples()),
            depth: usize::from(color.bit_depth().div_ceil(8)),
            planar,
            tiled: decoder.get_chunk_type() == ChunkType::Tile,
            chunk: [chunk_width as usize, chunk_height as usize],
        })
    }

    /// Returns an error if the tiles store many more pixels than the image has. A few bytes can encode many pixels.
    pub(super) fn check_stored(&self) -> Result<(), Failure> {
        let [width, height] = self.chunk.map(|side| side as u64);
        let stored = width.saturating_mul(height).saturating_mul(self.chunks());
        let pixels = self.width as u64 * self.height as u64 * self.planes() as u64;
        // Strips are exempt, because the last strip ends with the image.
        if !self.tiled || stored <= FREE_STORED.max(MAX_STORED * pixels) {
            return Ok(());
        }
        Err(Failure::too_large(format!(
            "a TIFF whose tiles have {stored} pixels, for {pixels} of its planes (a decompression bomb?). Save it with smaller tiles"
        )))
    }

    pub(super) fn channels_in_chunk(&self) -> usize {
        if self.planar { 1 } else { self.channels }
    }

    pub(super) fn planes(&self) -> usize {
        if self.planar { self.channels } else { 1 }
    }

    pub(super) fn chunks(&self) -> u64 {
        let [width, height] = self.chunk;
        (self.width.div_ceil(width) as u64)
            .saturating_mul(self.height.div_ceil(height) as u64)
            .saturating_mul(self.planes() as u64)
    }

    /// Returns the size that a strip or tile stores. The last strip ends with the image, whereas tiles extend beyond
    /// its edges.
    pub(super) fn stored(&self, index: usize) -> Stored {
        let [width, height] = self.chunk;
        let down = self.height.div_ceil(height);
        let left = match index % down {
            _ if self.tiled => height,
            strip => self.height - strip * height,
        };
        Stored {
            width,
            height: height.min(left),
            may_be_higher: !self.tiled && left <= height,
        }
    }

    /// Returns the number of bytes of the part of a strip or tile that is inside the image.
    pub(super) fn chunk_bytes(&self) -> u64 {
        let [width, height] = [self.chunk[0].min(self.width), self.chunk[1].min(self.height)];
        (width as u64 * height as u64).saturating_mul((self.channels_in_chunk() * self.depth) as u64)
    }

    /// Returns the number of bytes of a complete row of a strip or tile.
    pub(super) fn row_bytes(&self) -> u64 {
        (self.chunk[0] as u64).saturating_mul((self.channels_in_chunk() * self.depth) as u64)
    }
}
