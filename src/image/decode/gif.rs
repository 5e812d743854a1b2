//! The first frame of a GIF, through the `gif` crate, on a canvas that the frame may enlarge.

use std::io::Read;

use gif::{ColorOutput, DecodeOptions};

use super::memory::Claim;
use super::{Failure, color};
use crate::image::RgbImage;

/// The end of a frame's data, and of the file.
const END: &[u8] = b"\0;";

/// True if the file ends behind a block of the first frame's data, which may be its last one.
fn lacks_end(bytes: &[u8]) -> bool {
    /// Bytes of a palette by the flags that tell of it.
    fn palette(flags: u8) -> usize {
        if flags & 0x80 == 0 { 0 } else { 6 << (flags & 7) }
    }
    /// Passes blocks up to an empty one. `Err` at the file's end, with whether it is behind a block.
    fn blocks(mut rest: &[u8]) -> Result<&[u8], bool> {
        loop {
            let (&length, after) = rest.split_first().ok_or(true)?;
            rest = after.get(usize::from(length)..).ok_or(false)?;
            if length == 0 {
                return Ok(rest);
            }
        }
    }
    let Some(&flags) = bytes.get(10) else { return false };
    let mut rest = bytes.get(13 + palette(flags)..).unwrap_or_default();
    loop {
        rest = match rest {
            // An extension, behind its label.
            [b'!', _, rest @ ..] => match blocks(rest) {
                Ok(rest) => rest,
                Err(_) => return false,
            },
            // A frame, with its size, flags, palette and the size of its codes.
            [b',', _, _, _, _, _, _, _, _, flags, rest @ ..] => {
                let data = rest.get(palette(*flags) + 1..);
                return data.is_some_and(|data| blocks(data) == Err(true));
            }
            _ => return false,
        };
    }
}

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    let reason = |error: gif::DecodingError| match error {
        gif::DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::truncated("the GIF is truncated")
        }
        other => format!("damaged or truncated GIF: {other}").into(),
    };
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let end = if lacks_end(bytes) { END } else { &[] };
    let mut decoder = options.read_info(bytes.chain(end)).map_err(reason)?;
    let screen = (decoder.width(), decoder.height());

    let frame = decoder
        .next_frame_info()
        .map_err(reason)?
        .ok_or("the GIF has no image")?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (frame_width, frame_height) = (usize::from(frame.width), usize::from(frame.height));
    let transparent = frame.transparent;
    let canvas_width = (left + frame_width).max(screen.0.into());
    let canvas_height = (top + frame_height).max(screen.1.into());
    let (width, height) = claim.check(canvas_width as u64, canvas_height as u64)?;
    claim.check(frame_width as u64, frame_height as u64)?;
    // Indices of the frame, and indices and pixels of the canvas.
    claim.reserve(frame_width as u64 * frame_height as u64 + width as u64 * height as u64 * 4)?;

    let mut pixels = vec![0; frame_width * frame_height];
    decoder.read_into_buffer(&mut pixels).map_err(reason)?;

    // Pillow shows the transparent colour, or the first one, where the frame leaves the canvas uncovered.
    let mut canvas = vec![transparent.unwrap_or(0); width * height];
    for (row, from) in canvas
        .chunks_exact_mut(width)
        .skip(top)
        .zip(pixels.chunks_exact(frame_width))
    {
        row[left..left + frame_width].copy_from_slice(from);
    }
    let ramp: Vec<u8> = (0..=255).flat_map(|grey| [grey; 3]).collect();
    // Without any palette an index is a grey.
    let palette = decoder.palette().unwrap_or(&ramp);
    let data = color::palette(width * height, canvas.into_iter(), palette);
    Ok(RgbImage { width, height, data })
}
