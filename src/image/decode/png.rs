//! PNG, through the `png` crate: all colour types and depths, interlaced or not; of an animation the default image.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Transformations};

use super::{Failure, Limits, color};
use crate::image::RgbImage;

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<RgbImage, Failure> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(reason)?;
    let (width, height) = limits.check(header.width, header.height)?;

    let mut reader = decoder.read_info().map_err(reason)?;
    let size = reader
        .output_buffer_size()
        .ok_or_else(|| Failure::too_large("the image does not fit into memory"))?;
    let mut samples = vec![0; size];
    let frame = reader.next_frame(&mut samples).map_err(reason)?;
    samples.truncate(frame.buffer_size());

    let bits = frame.bit_depth as usize;
    if frame.bit_depth == BitDepth::Sixteen {
        samples = match frame.color_type {
            // Pillow clips a 16-bit grey to 8 bits; of the others it takes the high byte.
            ColorType::Grayscale => samples
                .chunks_exact(2)
                .map(|s| if s[0] == 0 { s[1] } else { 255 })
                .collect(),
            _ => samples.into_iter().step_by(2).collect(),
        };
    }
    let data = match frame.color_type {
        ColorType::Grayscale if bits == 16 => color::grey(samples.into_iter()),
        ColorType::Grayscale => {
            color::grey(color::unpack(&samples, width, bits).map(|sample| sample * color::grey_step(bits)))
        }
        ColorType::Indexed => {
            let palette = reader.info().palette.as_deref().ok_or("the palette is missing")?;
            color::palette(color::unpack(&samples, width, bits), palette)
        }
        ColorType::GrayscaleAlpha => color::grey(samples.into_iter().step_by(2)),
        ColorType::Rgb => samples,
        ColorType::Rgba => color::first_three(&samples, 4),
    };
    Ok(RgbImage { width, height, data })
}

fn reason(error: png::DecodingError) -> Failure {
    match error {
        png::DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::truncated("the PNG is truncated")
        }
        other => format!("damaged PNG: {other}").into(),
    }
}
