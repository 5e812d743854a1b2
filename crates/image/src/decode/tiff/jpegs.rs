//! Decodes JPEGs in the strips or tiles of a TIFF with the decoder of JPEG files. The TIFF says what their components
//! mean.

use std::cell::Cell;

use ::tiff::ColorType;
use ::tiff::decoder::ifd::Value;
use ::tiff::tags::Tag;

use super::failure::{name, reason};
use super::layout::{Layout, Source};
use crate::decode::cancellation::Cancellation;
use crate::decode::failure::Failure;
use crate::decode::jpeg::{Coding, FREE_VISITS, Jpeg};

/// Maximum ratio of the bytes of all strips or tiles to the bytes of the file.
const MAX_PASSES: u64 = 4;

/// Number of bytes that the strips or tiles of any file may have together: tables of 1 KiB for each of 262,144 tiles.
const FREE_BYTES: u64 = 1 << 28;

pub(super) struct Jpegs<'a> {
    file: &'a [u8],
    offsets: Vec<usize>,
    lengths: Vec<usize>,
    /// Quantisation and Huffman tables shared by all strips or tiles.
    tables: Option<Vec<u8>>,
    coding: Coding,
    /// Remaining block visits of all strips or tiles.
    free_visits: Cell<u64>,
    /// Number of components of each JPEG. The TIFF may count fewer channels.
    components: usize,
}

impl<'a> Jpegs<'a> {
    /// Reads the JPEG tags of a page. Returns `None` if the page is compressed otherwise.
    pub(super) fn find(
        decoder: &mut Source<'_>,
        file: &'a [u8],
        color: ColorType,
        planar: bool,
    ) -> Result<Option<Self>, Failure> {
        const JPEG: u16 = 7;
        if decoder.find_tag_unsigned(Tag::Compression).ok().flatten() != Some(JPEG) {
            return Ok(None);
        }
        let coding = match color {
            // Pillow converts planar YCbCr in yet another way.
            ColorType::YCbCr(_) if planar => {
                return Err(Failure::unsupported("a TIFF with JPEGs of planar YCbCr"));
            }
            ColorType::YCbCr(8) => Coding::YCbCr,
            _ if color.bit_depth() == 8 => Coding::Stored,
            _ => {
                return Err(Failure::unsupported(format!(
                    "a TIFF with JPEGs of {}",
                    name(color)
                )));
            }
        };
        let samples = decoder.find_tag_unsigned(Tag::SamplesPerPixel);
        let components = match samples.ok().flatten() {
            Some(samples @ 1..) if !planar => samples,
            _ => 1,
        };
        let channels = if planar {
            1
        } else {
            usize::from(color.num_samples())
        };
        if components < channels || coding == Coding::YCbCr && components > channels {
            return Err("damaged TIFF: its number of samples does not match its colours".into());
        }
        let mut list = |strips, tiles| {
            let strips = decoder.find_tag_unsigned_vec::<usize>(strips);
            match strips.map_err(|error| reason(&error))? {
                Some(list) => Ok::<_, Failure>(list),
                None => Ok(decoder
                    .find_tag_unsigned_vec(tiles)
                    .map_err(|error| reason(&error))?
                    .unwrap_or_default()),
            }
        };
        let offsets = list(Tag::StripOffsets, Tag::TileOffsets)?;
        let lengths = list(Tag::StripByteCounts, Tag::TileByteCounts)?;
        let tables = decoder
            .find_tag(Tag::JPEGTables)
            .map_err(|error| reason(&error))?;
        Ok(Some(Self {
            file,
            offsets,
            lengths,
            tables: tables
                .map(Value::into_u8_vec)
                .transpose()
                .map_err(|error| reason(&error))?,
            coding,
            free_visits: Cell::new(FREE_VISITS),
            components,
        }))
    }

    /// Returns the number of bytes that the most expensive strip or tile needs.
    pub(super) fn memory(&self, layout: &Layout, cancellation: Cancellation<'_>) -> Result<u64, Failure> {
        self.check_bytes(layout.chunks())?;
        let mut largest = 0;
        for index in 0..layout.chunks() as usize {
            cancellation.check()?;
            largest = largest.max(self.read(index, layout)?.memory(self.coding)?);
        }
        Ok(largest)
    }

    /// Decodes the samples of a strip or tile in its whole width. YCbCr is converted to RGB; other samples stay as
    /// stored.
    pub(super) fn decode(
        &self,
        index: usize,
        layout: &Layout,
        cancellation: Cancellation<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let jpeg = self.read(index, layout)?;
        let mut samples = jpeg.pixels(self.coding, Vec::new(), &self.free_visits, cancellation)?;
        let channels = layout.channels_in_chunk();
        if self.components > channels {
            let mut at = 0..;
            samples.retain(|_| at.next().is_some_and(|at: usize| at % self.components < channels));
        }
        Ok(samples)
    }

    /// Returns an error if strips or tiles share bytes of the file, or tables, so that reading them takes much longer
    /// than reading the file.
    fn check_bytes(&self, chunks: u64) -> Result<(), Failure> {
        let file = self.file.len();
        let lengths = self.lengths.iter().map(|&length| length.min(file) as u64);
        let tables = self.tables.as_ref().map_or(0, Vec::len) as u64;
        let bytes = lengths.sum::<u64>().saturating_add(chunks.saturating_mul(tables));
        if bytes > (file as u64).saturating_mul(MAX_PASSES).max(FREE_BYTES) {
            return Err(Failure::too_large(format!(
                "the JPEGs in the TIFF have {bytes} bytes with their tables, in a file of {file} bytes. Save it with another compression"
            )));
        }
        Ok(())
    }

    fn read(&self, index: usize, layout: &Layout) -> Result<Jpeg<'_>, Failure> {
        let place = self.offsets.get(index).zip(self.lengths.get(index));
        let (&offset, &length) = place.ok_or("damaged TIFF: a strip or tile is missing")?;
        let rest = self.file.get(offset..).unwrap_or_default();
        let jpeg = Jpeg::in_tiff(&rest[..length.min(rest.len())], self.tables.as_deref())?;
        let [width, height, components] = jpeg.size();
        let expected = layout.stored(index);
        // Some programs fill up the last strip.
        let rows = if expected.may_be_higher && height > expected.height {
            expected.height
        } else {
            height
        };
        if [width, rows, components] != [expected.width, expected.height, self.components] {
            return Err(format!(
                "damaged TIFF: a JPEG of {width}×{height} pixels with {components} components is in a strip or tile of \
                 {}×{} with {}",
                expected.width, expected.height, self.components
            )
            .into());
        }
        Ok(jpeg)
    }
}
