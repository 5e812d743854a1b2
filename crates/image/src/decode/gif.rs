//! Decodes the first frame of a GIF with the `gif` crate, on a canvas that the frame may enlarge.

use std::borrow::Cow;
use std::io::Read;

use gif::{ColorOutput, DecodeOptions};

use super::color;
use super::failure::Failure;
use super::memory::Claim;
use crate::rgb_image::RgbImage;

/// Terminators of a frame's data and of the file.
const END: &[u8] = b"\0;";

/// Label of the extension that precedes a frame.
const GRAPHIC_CONTROL: u8 = 0xF9;

/// Parts of a file that the decoder needs. As in Pillow, bytes between blocks are skipped unless they begin a block.
struct Parts<'a> {
    /// Header with the global palette. If neither the header nor the first frame has a palette, indices are greys, so a
    /// palette of greys is added.
    header: Cow<'a, [u8]>,
    /// Rest of the file, from the first frame on.
    frame: &'a [u8],
    /// Transparent index of the first frame.
    transparent: Option<u8>,
    /// True if the file ends after a complete block of the frame's data, which may be the last one.
    lacks_end: bool,
}

impl<'a> Parts<'a> {
    fn find(bytes: &'a [u8]) -> Result<Self, Failure> {
        const CUT: Failure = Failure::truncated("the GIF is truncated");
        let flags = *bytes.get(10).ok_or(CUT)?;
        let (header, mut rest) = bytes.split_at_checked(13 + palette_bytes(flags)).ok_or(CUT)?;
        let mut transparent = None;
        loop {
            match rest {
                [b'!', label, after @ ..] => {
                    if let (GRAPHIC_CONTROL, &[length, flags, _, _, index, ..]) = (*label, after)
                        && length >= 4
                    {
                        transparent = (flags & 1 != 0).then_some(index);
                    }
                    rest = behind_blocks(after).map_err(|_| CUT)?;
                }
                // A frame: position, size, flags, palette and code size.
                [b',', _, _, _, _, _, _, _, _, flags, after @ ..] => {
                    let data = after.get(palette_bytes(*flags) + 1..);
                    return Ok(Self {
                        header: with_palette(header, *flags),
                        frame: rest,
                        transparent,
                        lacks_end: data.is_some_and(|data| behind_blocks(data) == Err(true)),
                    });
                }
                [b',', ..] => return Err(CUT),
                [b';', ..] | [] => return Err("the GIF has no image".into()),
                [_, after @ ..] => rest = after,
            }
        }
    }
}

/// Returns the header. Adds a palette of 256 greys if neither the header nor the frame with these flags has one.
fn with_palette(header: &[u8], flags: u8) -> Cow<'_, [u8]> {
    if (header[10] | flags) & 0x80 != 0 {
        return Cow::Borrowed(header);
    }
    let mut header = header.to_vec();
    header[10] |= 0x87;
    header.extend((0..=255).flat_map(|grey| [grey; 3]));
    Cow::Owned(header)
}

/// Returns the number of bytes of a palette, or 0 if the flags say that there is none.
fn palette_bytes(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 6 << (flags & 7) }
}

/// Returns the bytes after a list of blocks, which ends with an empty block.
///
/// If the bytes end earlier, the error is true if they end after a complete block.
fn behind_blocks(mut rest: &[u8]) -> Result<&[u8], bool> {
    loop {
        let (&length, after) = rest.split_first().ok_or(true)?;
        rest = after.get(usize::from(length)..).ok_or(false)?;
        if length == 0 {
            return Ok(rest);
        }
    }
}

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    let reason = |error: gif::DecodingError| match error {
        gif::DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::truncated("the GIF is truncated")
        }
        other => format!("damaged or truncated GIF: {other}").into(),
    };
    let parts = Parts::find(bytes)?;
    let end = if parts.lacks_end { END } else { &[] };
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let file = parts.header.as_ref().chain(parts.frame).chain(end);
    let mut decoder = options
        .read_info(claim.cancellation().reader(file))
        .map_err(reason)?;
    let screen = (decoder.width(), decoder.height());

    let frame = decoder
        .next_frame_info()
        .map_err(reason)?
        .ok_or("the GIF has no image")?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (frame_width, frame_height) = (usize::from(frame.width), usize::from(frame.height));
    let canvas_width = (left + frame_width).max(screen.0.into());
    let canvas_height = (top + frame_height).max(screen.1.into());
    let (width, height) = claim.check(canvas_width as u64, canvas_height as u64)?;
    claim.check(frame_width as u64, frame_height as u64)?;
    // Memory for the indices of the frame, and the indices and pixels of the canvas.
    claim.reserve(frame_width as u64 * frame_height as u64 + width as u64 * height as u64 * 4)?;

    let mut pixels = vec![0; frame_width * frame_height];
    decoder.read_into_buffer(&mut pixels).map_err(reason)?;

    // Pillow shows the transparent colour, or the first colour, where the frame does not cover the canvas.
    let mut canvas = vec![parts.transparent.unwrap_or(0); width * height];
    for (row, from) in canvas
        .chunks_exact_mut(width)
        .skip(top)
        .zip(pixels.chunks_exact(frame_width))
    {
        row[left..left + frame_width].copy_from_slice(from);
    }
    let palette = decoder.palette().map_err(reason)?;
    let data = color::palette(width * height, canvas.into_iter(), palette);
    Ok(RgbImage { width, height, data })
}
