//! Reads uncompressed strips and tiles as Pillow does, by their offsets and sizes only.
//!
//! Lengths in the directory may be wrong or reach beyond the file, and rows outside of the image may be missing.

use ::tiff::ColorType;
use ::tiff::decoder::DecodingResult;
use ::tiff::tags::{SampleFormat, Tag};

use super::layout::{Layout, Source};
use crate::decode::failure::Failure;

pub(super) struct Raw<'a> {
    file: &'a [u8],
    offsets: Vec<usize>,
    lowest_bit_first: bool,
    bits: usize,
    format: SampleFormat,
    /// Number of samples per pixel of a chunky page. The colour may have fewer.
    stored_channels: usize,
}

impl<'a> Raw<'a> {
    /// Creates a reader. `offsets` are the positions of the strips or tiles.
    pub(super) fn new(
        decoder: &mut Source<'_>,
        file: &'a [u8],
        offsets: Vec<usize>,
        color: ColorType,
        lowest_bit_first: bool,
    ) -> Self {
        let format = decoder
            .find_tag_unsigned_vec::<u16>(Tag::SampleFormat)
            .ok()
            .flatten();
        let format = format.and_then(|formats| formats.first().copied()).unwrap_or(1);
        let stored_channels = decoder.find_tag_unsigned(Tag::SamplesPerPixel).ok().flatten();
        Self {
            stored_channels: stored_channels.unwrap_or(1),
            file,
            offsets,
            lowest_bit_first,
            bits: color.bit_depth().into(),
            format: SampleFormat::from_u16_exhaustive(format),
        }
    }

    /// Returns the samples of the part of a strip or tile that is `width` × `height` pixels large. Rows are whole
    /// bytes.
    pub(super) fn samples(
        &self,
        index: usize,
        layout: &Layout,
        [width, height]: [usize; 2],
    ) -> Result<DecodingResult, Failure> {
        const MISSING: Failure =
            Failure::truncated("the TIFF is truncated: rows of a strip or tile are missing");
        let channels = layout.channels_in_chunk();
        let stored = if layout.planar {
            1
        } else {
            self.stored_channels.max(channels)
        };
        if self.bits == 0 || stored != channels && !self.bits.is_multiple_of(8) {
            return Err(Failure::unsupported(format!(
                "a TIFF with {stored} samples of {} bits per pixel",
                self.bits
            )));
        }
        let row_bytes = |width: usize| (width * stored * self.bits).div_ceil(8);
        let (stride, used) = (row_bytes(layout.chunk[0]), row_bytes(width));
        let offset = *self.offsets.get(index).ok_or(MISSING)?;
        let end = (height - 1)
            .checked_mul(stride)
            .and_then(|skipped| skipped.checked_add(used));
        let rows = self
            .file
            .get(offset..)
            .and_then(|rest| rest.get(..end?))
            .ok_or(MISSING)?;
        let rows = rows.chunks(stride).map(|row| &row[..used]);
        let mut bytes = Vec::with_capacity((width * channels * self.bits).div_ceil(8) * height);
        if stored == channels {
            rows.for_each(|row| bytes.extend_from_slice(row));
        } else {
            let pixels = rows.flat_map(|row| row.chunks_exact(stored * self.bits / 8));
            pixels.for_each(|pixel| bytes.extend_from_slice(&pixel[..channels * self.bits / 8]));
        }
        if self.lowest_bit_first {
            bytes.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        }
        self.numbers(bytes)
    }

    fn numbers(&self, bytes: Vec<u8>) -> Result<DecodingResult, Failure> {
        let big_endian = self.file.starts_with(b"M");
        macro_rules! numbers {
            ($kind:ty) => {{
                let (numbers, _) = bytes.as_chunks();
                let numbers = numbers.iter().map(|number| {
                    if big_endian {
                        <$kind>::from_be_bytes(*number)
                    } else {
                        <$kind>::from_le_bytes(*number)
                    }
                });
                numbers.collect()
            }};
        }
        Ok(match (self.format, self.bits) {
            (SampleFormat::Uint, ..=8) => DecodingResult::U8(bytes),
            (SampleFormat::Uint, 16) => DecodingResult::U16(numbers!(u16)),
            (SampleFormat::Uint, 32) => DecodingResult::U32(numbers!(u32)),
            (SampleFormat::Int, 8) => DecodingResult::I8(bytes.into_iter().map(u8::cast_signed).collect()),
            (SampleFormat::Int, 16) => DecodingResult::I16(numbers!(i16)),
            (SampleFormat::Int, 32) => DecodingResult::I32(numbers!(i32)),
            (SampleFormat::IEEEFP, 32) => DecodingResult::F32(numbers!(f32)),
            (format, bits) => {
                return Err(Failure::unsupported(format!(
                    "a TIFF with samples of {bits} bits and SampleFormat {}",
                    format.to_u16()
                )));
            }
        })
    }
}
