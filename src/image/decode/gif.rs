//! The first frame of a GIF, through the `gif` crate, on a canvas that the frame may enlarge.

use gif::{ColorOutput, DecodeOptions};

use super::memory::Claim;
use super::{Failure, color};
use crate::image::RgbImage;

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    let reason = |error: gif::DecodingError| match error {
        gif::DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::truncated("the GIF is truncated")
        }
        other => format!("damaged or truncated GIF: {other}").into(),
    };
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let mut decoder = options.read_info(bytes).map_err(reason)?;
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
