//! Decodes PNG with the `png` crate: all colour types and depths, interlaced or not. Animations give their default
//! image.
//!
//! As in Pillow, a file is decoded if its data has all pixels. `IEND`, the end of the data and their checksums may be
//! missing.

mod chunks;
mod text;

use std::io::Cursor;

use ::png::{BitDepth, ColorType, Decoder, Transformations};

use super::color;
use super::failure::Failure;
use super::memory::Claim;
use crate::rgb_image::RgbImage;
use chunks::Parts;
pub(super) use text::metadata;

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    let parts = Parts::find(bytes)?;
    let (width, height) = parts.size();
    claim.check(width, height)?;
    let copied = parts.copied();
    if copied > 0 {
        claim.reserve(copied)?;
    }
    if !parts.decompress_to(parts.decompressed_bytes()) {
        return Err(chunks::CUT);
    }
    let file = parts.file(bytes);
    let mut decoder = Decoder::new(claim.cancellation().reader(Cursor::new(&file[..])));
    decoder.ignore_checksums(true);
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(reason)?;
    let (width, height) = claim.check(header.width, header.height)?;
    let pixels = width as u64 * height as u64;
    let bits = header.color_type.samples() as u64 * header.bit_depth as u64;
    let row = (width as u64).saturating_mul(bits).div_ceil(8);
    let rgb = match (header.color_type, header.bit_depth) {
        // The decoded samples are the pixels.
        (ColorType::Rgb, BitDepth::Eight) => 0,
        _ => pixels.saturating_mul(3),
    };
    // Besides the samples, the decoder holds some rows and copies of chunks.
    let of_decoder = row.saturating_mul(6).saturating_add(bytes.len() as u64);
    let samples = row.saturating_mul(height as u64);
    claim.reserve(
        samples
            .saturating_add(rgb)
            .saturating_add(of_decoder)
            .saturating_add(copied),
    )?;
    decoder.set_limits(::png::Limits {
        bytes: usize::try_from(of_decoder).unwrap_or(usize::MAX),
    });

    let mut reader = decoder.read_info().map_err(reason)?;
    let size = reader
        .output_buffer_size()
        .ok_or_else(|| Failure::too_large("the image does not fit into memory"))?;
    let mut samples = vec![0; size];
    let frame = reader.next_frame(&mut samples).map_err(reason)?;
    samples.truncate(frame.buffer_size());

    let bits = frame.bit_depth as usize;
    // Pillow takes the high byte of 16-bit colours.
    let wide = usize::from(frame.bit_depth == BitDepth::Sixteen);
    let data = match frame.color_type {
        // Pillow clips 16-bit greys to 8 bits.
        ColorType::Grayscale if bits == 16 => {
            let clipped = samples
                .chunks_exact(2)
                .map(|s| if s[0] == 0 { s[1] } else { 255 });
            color::grey(width * height, clipped)
        }
        ColorType::Grayscale => {
            let samples = color::unpack(&samples, width, bits).map(|sample| sample * color::grey_step(bits));
            color::grey(width * height, samples)
        }
        ColorType::Indexed => {
            let palette = reader.info().palette.as_deref().ok_or("the palette is missing")?;
            color::palette(width * height, color::unpack(&samples, width, bits), palette)
        }
        ColorType::GrayscaleAlpha => color::grey(width * height, samples.into_iter().step_by(2 << wide)),
        ColorType::Rgb if bits == 8 => samples,
        ColorType::Rgb | ColorType::Rgba => {
            let channels = frame.color_type.samples();
            let pixels = samples.chunks_exact(channels << wide);
            color::rgb(width * height, pixels.map(|s| [s[0], s[1 << wide], s[2 << wide]]))
        }
    };
    Ok(RgbImage { width, height, data })
}

fn reason(error: ::png::DecodingError) -> Failure {
    match error {
        ::png::DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            chunks::CUT
        }
        ::png::DecodingError::LimitsExceeded => Failure::too_large("a chunk of the PNG is too large"),
        // The header was checked before. The decoder's messages contain the `Debug` form of its types, so they are
        // replaced.
        _ => "damaged PNG: its compressed pixel data is damaged or ends early".into(),
    }
}
