//! Decodes the first page of a TIFF with the `tiff` crate. JPEGs in it go through the decoder of JPEG files.
//!
//! | property | supported |
//! | --- | --- |
//! | layout | strips or tiles, chunky or planar |
//! | compression | none, LZW, Deflate, PackBits, JPEG, Group 4 |
//! | colours | bilevel, grey (integers or f32), palette, RGB, CMYK, and YCbCr if JPEG-compressed |
//!
//! The orientation tag is applied, because Pillow applies it in TIFF only.

mod directory;
mod failure;
mod jpegs;
mod layout;
mod raw;

use std::borrow::Cow;
use std::io::Cursor;

use ::tiff::ColorType;
use ::tiff::decoder::ifd::Value;
use ::tiff::decoder::{Decoder, DecodingResult, Limits as BufferLimits};
use ::tiff::tags::Tag;

use super::cancellation::Cancellation;
use super::color;
use super::failure::Failure;
use super::memory::Claim;
use super::orientation::{self, upright};
use crate::rgb_image::RgbImage;
use directory::Photometric;
use failure::{name, reason};
use jpegs::Jpegs;
use layout::{Layout, Source};
use raw::Raw;

/// Maximum number of samples per pixel in Pillow: four inks and two extra samples.
const MAX_SAMPLES: u16 = 6;

/// Kind of extra sample that is an alpha which the colours were multiplied by.
const PREMULTIPLIED: u16 = 1;

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    claim.reserve(directory::memory(bytes)?)?;
    let directory = directory::read_ahead(bytes)?;
    let photometric = directory.photometric;
    // The decoder holds a list as values, together with offsets and lengths of strips that it read before.
    let lists = directory
        .longest
        .saturating_mul(2 * size_of::<Value>() as u64 + 6 * size_of::<u64>() as u64);
    let copy = match &directory.file {
        Cow::Owned(copy) => copy.len() as u64,
        Cow::Borrowed(_) => 0,
    };
    claim.reserve(lists.saturating_add(copy))?;
    let mut decoder = Decoder::new(claim.cancellation().reader(Cursor::new(directory.file)))
        .map_err(|error| reason(&error))?;
    let (width, height) = decoder.dimensions().map_err(|error| reason(&error))?;
    let (width, height) = claim.check(width, height)?;
    let color = decoder.colortype().map_err(|error| reason(&error))?;
    if color.num_samples() > MAX_SAMPLES || color.bit_depth() > 32 {
        return Err(Failure::unsupported(format!(
            "a TIFF with pixels of {}",
            name(color)
        )));
    }
    let layout = Layout::read(&mut decoder, width, height, color)?;
    claim.limits.check_chunks(layout.chunks())?;
    layout.check_stored()?;
    let orientation = orientation::of_tiff(bytes);
    let lowest_bit_first = directory.lowest_bit_first;
    if lowest_bit_first {
        check_fill_order(&mut decoder, bytes, photometric, color)?;
    }
    // Pillow reads uncompressed planes itself, and neither inverts them nor reverses their bits.
    let raw_planes = directory.raw.is_some() && layout.planar;
    let photometric = match photometric {
        Photometric::WhiteIsZero if raw_planes && matches!(color, ColorType::Gray(1 | 8)) => {
            Photometric::Other
        }
        photometric => photometric,
    };
    let misread = match color {
        ColorType::Gray(1) => photometric == Photometric::Palette,
        color => matches!(color, ColorType::Gray(2 | 4)),
    };
    if raw_planes && lowest_bit_first && misread {
        return Err(Failure::unsupported(format!(
            "a TIFF with FillOrder (tag 266) 2 and planes of {}",
            name(color)
        )));
    }
    let jpegs = Jpegs::find(&mut decoder, bytes, color, layout.planar)?;
    let raw = directory.raw.map(|offsets| {
        Raw::new(
            &mut decoder,
            bytes,
            offsets,
            color,
            lowest_bit_first && !raw_planes,
        )
    });
    // Memory for a strip or tile: its samples, a copy of the same size, and a row. A JPEG states its own memory.
    let chunk = match &jpegs {
        Some(jpegs) => jpegs.memory(&layout, claim.cancellation())?,
        None => layout
            .chunk_bytes()
            .saturating_mul(2)
            .saturating_add(layout.row_bytes()),
    };
    // The JPEG decoder has converted YCbCr to RGB.
    let color = match (color, &jpegs) {
        (ColorType::YCbCr(depth), Some(_)) => ColorType::RGB(depth),
        _ => color,
    };
    let pixels = width as u64 * height as u64;
    let rgb = match (color, orientation) {
        (ColorType::RGB(_), ..2 | 9..) => 0,
        (ColorType::RGB(_), _) | (_, ..2 | 9..) => 3,
        _ => 6,
    };
    // First the chunks are decoded one by one, then the samples are converted.
    let later = chunk.max(pixels.saturating_mul(rgb));
    let samples = pixels.saturating_mul(u64::from(color.num_samples()));
    claim.reserve(
        samples
            .saturating_add(later)
            .saturating_add(lists)
            .saturating_add(copy),
    )?;
    // The limits follow from the reserved memory.
    let mut buffers = BufferLimits::default();
    buffers.decoding_buffer_size = usize::try_from(layout.chunk_bytes().max(lists)).unwrap_or(usize::MAX);
    buffers.intermediate_buffer_size = bytes.len();
    let mut decoder = decoder.with_limits(buffers);
    let chunks = Chunks {
        jpegs: jpegs.as_ref(),
        raw: raw.as_ref(),
        cancellation: claim.cancellation(),
    };
    let samples = read_samples(&mut decoder, &layout, color, &chunks)?;

    let channels = usize::from(color.num_samples());
    let data = match (photometric, color) {
        (Photometric::WhiteIsZero, ColorType::Gray(bits @ (1 | 2 | 4 | 8))) => {
            let step = color::grey_step(bits.into());
            color::grey(
                width * height,
                samples.into_iter().map(|sample| 255 - sample * step),
            )
        }
        (
            Photometric::Palette,
            ColorType::Gray(1 | 2 | 4 | 8) | ColorType::Multiband { bit_depth: 8, .. },
        ) => {
            let table = palette(&mut decoder)?;
            color::palette(width * height, samples.into_iter().step_by(channels), &table)
        }
        (_, ColorType::Gray(bits @ (1 | 2 | 4 | 8))) => {
            let step = color::grey_step(bits.into());
            color::grey(width * height, samples.into_iter().map(|sample| sample * step))
        }
        // Pillow does not invert 16-bit greys.
        (_, ColorType::Gray(16 | 32)) => color::grey(width * height, samples.into_iter()),
        (_, ColorType::Multiband { bit_depth: 8, .. }) => {
            color::grey(width * height, samples.into_iter().step_by(channels))
        }
        (_, ColorType::RGB(8 | 16)) => samples,
        (_, ColorType::RGBA(8 | 16)) if extra_samples(&mut decoder).first() == Some(&PREMULTIPLIED) => {
            color::rgb(width * height, samples.chunks_exact(4).map(unpremultiply))
        }
        (_, ColorType::RGBA(8 | 16)) => color::first_three(&samples, 4),
        (_, ColorType::CMYK(8 | 16) | ColorType::CMYKA(8 | 16)) => {
            color::cmyk(samples.chunks_exact(channels).map(|s| [s[0], s[1], s[2], s[3]]))
        }
        _ => {
            return Err(Failure::unsupported(format!(
                "a TIFF with pixels of {}",
                name(color)
            )));
        }
    };
    let image = RgbImage { width, height, data };
    Ok(upright(image, orientation))
}

/// Returns an error if the tag FillOrder is 2 and Pillow does not support it for these samples. It supports bilevel,
/// grey, palette and 8-bit RGB.
fn check_fill_order(
    decoder: &mut Source<'_>,
    file: &[u8],
    photometric: Photometric,
    color: ColorType,
) -> Result<(), Failure> {
    let signed = decoder
        .find_tag_unsigned_vec::<u16>(Tag::SampleFormat)
        .ok()
        .flatten();
    let signed = signed.is_some_and(|formats| formats.iter().any(|&format| format != 1));
    let read = match color {
        _ if signed => false,
        ColorType::Gray(1 | 2 | 4 | 8) | ColorType::RGB(8) => true,
        ColorType::Gray(16) => photometric == Photometric::Other && file.starts_with(b"I"),
        _ => false,
    };
    if read {
        return Ok(());
    }
    Err(Failure::unsupported(format!(
        "a TIFF with FillOrder (tag 266) 2 and pixels of {}",
        name(color)
    )))
}

/// Readers of strips or tiles that the `tiff` crate does not read, and the cancellation of all.
struct Chunks<'a> {
    jpegs: Option<&'a Jpegs<'a>>,
    raw: Option<&'a Raw<'a>>,
    cancellation: Cancellation<'a>,
}

/// Reads the page's samples as `[height, width, channels]`, one byte each. Samples smaller than a byte are not scaled.
fn read_samples(
    decoder: &mut Source<'_>,
    layout: &Layout,
    color: ColorType,
    chunks: &Chunks<'_>,
) -> Result<Vec<u8>, Failure> {
    let &Layout {
        width,
        height,
        channels,
        planar,
        chunk: [chunk_width, chunk_height],
        ..
    } = layout;
    let (planes, channels_in_chunk) = (layout.planes(), layout.channels_in_chunk());

    let mut samples = vec![0; width * height * channels];
    let mut index = 0;
    for plane in 0..planes {
        for top in (0..height).step_by(chunk_height) {
            for left in (0..width).step_by(chunk_width) {
                chunks.cancellation.check()?;
                let used_width = chunk_width.min(width - left);
                let used_height = chunk_height.min(height - top);
                // Only JPEGs include pixels beyond the image's right edge.
                let (chunk, chunk_width) = match (chunks.jpegs, chunks.raw) {
                    (Some(jpegs), _) => (jpegs.decode(index, layout, chunks.cancellation)?, chunk_width),
                    (None, Some(raw)) => {
                        let samples = raw.samples(index, layout, [used_width, used_height])?;
                        (to_bytes(samples, color, used_width)?, used_width)
                    }
                    (None, None) => {
                        let samples = decoder.read_chunk(index as u32);
                        let samples = samples.map_err(|error| reason(&error))?;
                        (to_bytes(samples, color, used_width)?, used_width)
                    }
                };
                if chunk.len() < chunk_width * used_height * channels_in_chunk {
                    return Err("the TIFF's pixel data does not fit its size".into());
                }
                for (y, row) in chunk
                    .chunks_exact(chunk_width * channels_in_chunk)
                    .map(|row| &row[..used_width * channels_in_chunk])
                    .take(used_height)
                    .enumerate()
                {
                    let start = ((top + y) * width + left) * channels + plane;
                    if planar {
                        let pixels = samples[start..].iter_mut().step_by(channels);
                        pixels.zip(row).for_each(|(sample, &value)| *sample = value);
                    } else {
                        samples[start..start + row.len()].copy_from_slice(row);
                    }
                }
                index += 1;
            }
        }
    }
    Ok(samples)
}

/// Converts samples to 8 bits. Greys of 16 bits and more are clipped; 16-bit colours keep their high byte.
fn to_bytes(samples: DecodingResult, color: ColorType, width: usize) -> Result<Vec<u8>, Failure> {
    let grey = matches!(color, ColorType::Gray(_));
    Ok(match (samples, color) {
        (DecodingResult::U8(samples), ColorType::Gray(bits @ (1 | 2 | 4))) => {
            color::unpack(&samples, width, bits.into()).collect()
        }
        (DecodingResult::U8(samples), _) => samples,
        (DecodingResult::U16(samples), _) if grey => samples.into_iter().map(|s| s.min(255) as u8).collect(),
        (DecodingResult::U16(samples), _) => samples.into_iter().map(|s| (s >> 8) as u8).collect(),
        (DecodingResult::I8(samples), _) if grey => samples.into_iter().map(|s| s as u8).collect(),
        (DecodingResult::I16(samples), _) if grey => {
            samples.into_iter().map(|s| s.clamp(0, 255) as u8).collect()
        }
        (DecodingResult::I32(samples), _) if grey => {
            samples.into_iter().map(|s| s.clamp(0, 255) as u8).collect()
        }
        (DecodingResult::U32(samples), _) if grey => samples
            .into_iter()
            .map(|s| (s as i32).clamp(0, 255) as u8)
            .collect(),
        // A cast from float truncates, and saturates at both ends.
        (DecodingResult::F32(samples), _) if grey => samples.into_iter().map(|s| s as u8).collect(),
        _ => {
            return Err(Failure::unsupported(format!(
                "a TIFF with samples that Pillow does not support ({})",
                name(color)
            )));
        }
    })
}

fn unpremultiply(pixel: &[u8]) -> [u8; 3] {
    let alpha = u32::from(pixel[3]);
    [pixel[0], pixel[1], pixel[2]].map(|value| match alpha {
        0 => 0,
        _ => (u32::from(value) * 255 / alpha).min(255) as u8,
    })
}

/// Reads the colour map as RGB. The file has all reds, then all greens, then all blues, with 16 bits each; the high
/// byte counts.
fn palette(decoder: &mut Source<'_>) -> Result<Vec<u8>, Failure> {
    let map = decoder
        .get_tag_u16_vec(Tag::ColorMap)
        .map_err(|error| reason(&error))?;
    let entries = map.len() / 3;
    Ok((0..entries)
        .flat_map(|at| [0, 1, 2].map(|c| (map[c * entries + at] >> 8) as u8))
        .collect())
}

fn extra_samples(decoder: &mut Source<'_>) -> Vec<u16> {
    decoder
        .find_tag_unsigned_vec(Tag::ExtraSamples)
        .ok()
        .flatten()
        .unwrap_or_default()
}
