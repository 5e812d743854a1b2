//! The first page of a TIFF, through the `tiff` crate: strips or tiles, chunky or planar, raw, LZW, Deflate, PackBits,
//! JPEG or Group 4; bilevel, grey (integers or f32), palette, RGB, CMYK, and YCbCr if JPEG-compressed. The orientation
//! tag is applied, as Pillow does for TIFF alone.

mod photometric;

use std::io::Cursor;

use ::tiff::decoder::{Decoder, DecodingResult, Limits as BufferLimits};
use ::tiff::tags::Tag;
use ::tiff::{ColorType, TiffError};

use super::orientation::upright;
use super::{Failure, Limits, color};
use crate::error::ImageErrorKind;
use crate::image::RgbImage;
use photometric::Photometric;

/// Maximum number of samples per pixel in Pillow: four inks and two extra ones.
const MAX_SAMPLES: u16 = 6;

/// The kind of extra sample that is an alpha which the colours were multiplied with.
const PREMULTIPLIED: u16 = 1;

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<RgbImage, Failure> {
    let (photometric, bytes) = photometric::split_off(bytes)?;
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(|error| reason(&error))?;
    let (width, height) = decoder.dimensions().map_err(|error| reason(&error))?;
    let (width, height) = limits.check(width, height)?;
    let color = decoder.colortype().map_err(|error| reason(&error))?;
    if color.num_samples() > MAX_SAMPLES || color.bit_depth() > 32 {
        return Err(Failure::unsupported(format!("a TIFF with pixels of {color:?}")));
    }
    // Bounded by the pixels, which were checked.
    let mut buffers = BufferLimits::default();
    buffers.decoding_buffer_size = width * height * usize::from(MAX_SAMPLES) * 4;
    buffers.intermediate_buffer_size = buffers.decoding_buffer_size.max(buffers.intermediate_buffer_size);
    let mut decoder = decoder.with_limits(buffers);
    let samples = read_samples(&mut decoder, width, height, color)?;

    let channels = usize::from(color.num_samples());
    let data = match (photometric, color) {
        (Photometric::WhiteIsZero, ColorType::Gray(bits @ (1 | 2 | 4 | 8))) => {
            let step = color::grey_step(bits.into());
            color::grey(samples.into_iter().map(|sample| 255 - sample * step))
        }
        (
            Photometric::Palette,
            ColorType::Gray(1 | 2 | 4 | 8) | ColorType::Multiband { bit_depth: 8, .. },
        ) => {
            let table = palette(&mut decoder)?;
            color::palette(samples.into_iter().step_by(channels), &table)
        }
        (_, ColorType::Gray(bits @ (1 | 2 | 4 | 8))) => {
            let step = color::grey_step(bits.into());
            color::grey(samples.into_iter().map(|sample| sample * step))
        }
        // Pillow does not invert greys of 16 bits.
        (_, ColorType::Gray(16 | 32)) => color::grey(samples.into_iter()),
        (_, ColorType::Multiband { bit_depth: 8, .. }) => color::grey(samples.into_iter().step_by(channels)),
        (_, ColorType::RGB(8 | 16)) => samples,
        (_, ColorType::RGBA(8 | 16)) if extra_samples(&mut decoder).first() == Some(&PREMULTIPLIED) => {
            samples.chunks_exact(4).flat_map(unpremultiply).collect()
        }
        (_, ColorType::RGBA(8 | 16)) => color::first_three(&samples, 4),
        (_, ColorType::CMYK(8 | 16) | ColorType::CMYKA(8 | 16)) => {
            color::cmyk(samples.chunks_exact(channels).map(|s| [s[0], s[1], s[2], s[3]]))
        }
        (_, ColorType::YCbCr(8)) if is_jpeg(&mut decoder) => samples
            .chunks_exact(3)
            .flat_map(|s| color::ycbcr([s[0], s[1], s[2]]))
            .collect(),
        _ => return Err(Failure::unsupported(format!("a TIFF with pixels of {color:?}"))),
    };
    let image = RgbImage { width, height, data };
    let orientation = decoder.find_tag_unsigned::<u16>(Tag::Orientation).ok().flatten();
    Ok(upright(image, orientation.unwrap_or(1)))
}

fn reason(error: &TiffError) -> Failure {
    let kind = match error {
        TiffError::UnsupportedError(_) => ImageErrorKind::Unsupported,
        TiffError::LimitsExceeded => ImageErrorKind::TooLarge,
        TiffError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            ImageErrorKind::Truncated
        }
        _ => ImageErrorKind::Damaged,
    };
    Failure {
        kind,
        reason: format!("damaged, truncated or unsupported TIFF: {error}").into(),
    }
}

/// The page's samples, `[height, width, channels]`, one byte each; those smaller than a byte are not scaled.
fn read_samples(
    decoder: &mut Source<'_>,
    width: usize,
    height: usize,
    color: ColorType,
) -> Result<Vec<u8>, Failure> {
    let channels = usize::from(color.num_samples());
    let planar = matches!(
        decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration),
        Ok(Some(2))
    );
    let (planes, channels_in_chunk) = if planar { (channels, 1) } else { (1, channels) };
    let (chunk_width, chunk_height) = decoder.chunk_dimensions();
    let (chunk_width, chunk_height) = (chunk_width as usize, chunk_height as usize);
    if chunk_width == 0 || chunk_height == 0 {
        return Err("the TIFF's strips or tiles are empty".into());
    }

    let mut samples = vec![0; width * height * channels];
    let mut index = 0;
    for plane in 0..planes {
        for top in (0..height).step_by(chunk_height) {
            for left in (0..width).step_by(chunk_width) {
                let used_width = chunk_width.min(width - left);
                let chunk = to_bytes(
                    decoder.read_chunk(index).map_err(|error| reason(&error))?,
                    color,
                    used_width,
                )?;
                let used_height = chunk_height.min(height - top);
                if chunk.len() < used_width * used_height * channels_in_chunk {
                    return Err("the TIFF's pixel data does not fit its size".into());
                }
                for (y, row) in chunk
                    .chunks_exact(used_width * channels_in_chunk)
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

/// Samples to 8 bits: greys of 16 bits and more are clipped, of 16-bit colours the high byte is taken.
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
                "a TIFF with samples of another kind than Pillow reads ({color:?})"
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

type Source<'a> = Decoder<Cursor<std::borrow::Cow<'a, [u8]>>>;

/// The colour map as RGB: all reds, then all greens, then all blues, 16 bits each, of which the high byte counts.
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

fn is_jpeg(decoder: &mut Source<'_>) -> bool {
    matches!(decoder.find_tag_unsigned::<u16>(Tag::Compression), Ok(Some(7)))
}
