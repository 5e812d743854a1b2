//! WebP, through `image-webp`: lossy, lossless, and the first frame of an animation.
//!
//! An animation's first frame is placed on a transparent black canvas, unblended: its chunks become a still image of the
//! frame's size, which is decoded and copied to the canvas.

mod partitions;

use std::io::{Cursor, ErrorKind};

use image_webp::WebPDecoder;

use super::memory::Claim;
use super::{Failure, color};
use crate::image::RgbImage;

const INVALID: &str = "damaged or truncated WebP";
const CUT: Failure = Failure::truncated("the WebP is truncated: its frame is cut short");

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    // As libwebp, which reads nothing of a file that is shorter than its header says.
    let promised = bytes.get(4..8).map_or(0, |size| {
        u64::from(u32::from_le_bytes([size[0], size[1], size[2], size[3]]))
    });
    if (bytes.len() as u64) < promised + 8 {
        return Err(Failure::truncated("the WebP is truncated"));
    }
    let Some(canvas) = animation_canvas(bytes)? else {
        return still(bytes, claim, 0);
    };
    let (width, height) = claim.check(canvas.0, canvas.1)?;
    let frame = FirstFrame::find(bytes)?;
    let (left, top) = (frame.left, frame.top);
    let file = frame.into_still();
    let canvas = (width as u64 * height as u64).saturating_mul(3);
    let image = still(&file, claim, canvas.saturating_add(file.len() as u64))?;
    if left + image.width > width || top + image.height > height {
        return Err(format!("{INVALID}: the first frame leaves the canvas").into());
    }
    let mut data = vec![0; width * height * 3];
    for (row, from) in data
        .chunks_exact_mut(width * 3)
        .skip(top)
        .zip(image.data.chunks_exact(image.width * 3))
    {
        row[left * 3..left * 3 + from.len()].copy_from_slice(from);
    }
    Ok(RgbImage { width, height, data })
}

/// Decodes a still image, with `beside` bytes of memory in use beside it.
fn still(bytes: &[u8], claim: &mut Claim<'_>, beside: u64) -> Result<RgbImage, Failure> {
    let reason = |error: image_webp::DecodingError| match error {
        image_webp::DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Failure::truncated("the WebP is truncated")
        }
        other => format!("{INVALID}: {other}").into(),
    };
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(reason)?;
    let (width, height) = decoder.dimensions();
    // The decoder allocates what the frame says before it compares, and before it reads.
    let frame = Frame::find(bytes).ok_or(CUT)?;
    if frame.size != (width, height) {
        return Err(format!("{INVALID}: the frame has another size than the canvas").into());
    }
    if frame.lossy && !partitions::fit(frame.content) {
        return Err(CUT);
    }
    let (width, height) = claim.check(width, height)?;
    let alpha = decoder.has_alpha();
    claim.reserve(memory(&mut decoder, width as u64, height as u64, bytes).saturating_add(beside))?;
    let size = decoder
        .output_buffer_size()
        .ok_or_else(|| Failure::too_large("the image does not fit into memory"))?;
    let mut samples = vec![0; size];
    decoder.read_image(&mut samples).map_err(reason)?;
    let data = if alpha {
        color::first_three(&samples, 4)
    } else {
        samples
    };
    Ok(RgbImage { width, height, data })
}

/// The EXIF data.
pub(super) fn exif(file: &[u8]) -> Option<&[u8]> {
    let mut chunks = Chunks(file.get(12..)?);
    chunks.find_map(|(kind, content)| (kind == b"EXIF").then_some(content))
}

/// The frame of a still image.
struct Frame<'a> {
    lossy: bool,
    /// The width and height that it says.
    size: (u32, u32),
    content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first one; `None` if it is cut short.
    fn find(bytes: &'a [u8]) -> Option<Self> {
        Chunks(&bytes[12..]).find_map(|(kind, content)| {
            let lossy = match kind {
                b"VP8 " => true,
                b"VP8L" => false,
                _ => return None,
            };
            let size = if lossy {
                let side = |at: usize| {
                    let side = u16::from_le_bytes([*content.get(at)?, *content.get(at + 1)?]);
                    Some(u32::from(side & 0x3FFF))
                };
                (side(6)?, side(8)?)
            } else {
                let bits = u32::from_le_bytes(content.get(1..5)?.try_into().ok()?);
                ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
            };
            Some(Self { lossy, size, content })
        })
    }
}

/// Bytes that the decoder takes, and the pixels.
fn memory(decoder: &mut WebPDecoder<Cursor<&[u8]>>, width: u64, height: u64, bytes: &[u8]) -> u64 {
    let pixels = width * height;
    // Macroblocks of 16×16, chroma at half the size.
    let planes = width.next_multiple_of(16) * height.next_multiple_of(16) * 3 / 2;
    let per_pixel = match (decoder.is_lossy(), decoder.has_alpha()) {
        (true, false) => 3,
        // RGBA, and alpha as a lossless image, its green channel and a copy of it; or RGB at the end.
        (true, true) => 4 + 6,
        // RGB or RGBA, samples of 4 bytes, transforms and codes of blocks of at least 4×4.
        (false, _) => 4 + 4 + 2,
    };
    // Chunks are copied. Codes have tables.
    (planes + pixels.saturating_mul(per_pixel)).saturating_add(bytes.len() as u64)
}

/// The canvas's size if the file is an animation.
fn animation_canvas(bytes: &[u8]) -> Result<Option<(u32, u32)>, Failure> {
    const ANIMATION: u8 = 1 << 1;
    match Chunks(&bytes[12..]).next() {
        Some((b"VP8X", header)) if header.first().is_some_and(|flags| flags & ANIMATION != 0) => {
            Ok(Some((u24(header, 4)? + 1, u24(header, 7)? + 1)))
        }
        _ => Ok(None),
    }
}

struct FirstFrame<'a> {
    left: usize,
    top: usize,
    /// Width and height, each minus one, as a `VP8X` header has them.
    size: &'a [u8],
    /// `ALPH`, `VP8 ` or `VP8L` chunks.
    chunks: &'a [u8],
}

impl<'a> FirstFrame<'a> {
    fn find(bytes: &'a [u8]) -> Result<Self, Failure> {
        let (_, body) = Chunks(&bytes[12..])
            .find(|(kind, _)| *kind == b"ANMF")
            .ok_or_else(|| format!("{INVALID}: an animation without a frame"))?;
        let (left, top) = (u24(body, 0)? as usize * 2, u24(body, 3)? as usize * 2);
        let (size, chunks) = body.get(6..12).zip(body.get(16..)).ok_or(INVALID)?;
        Ok(Self {
            left,
            top,
            size,
            chunks,
        })
    }

    fn into_still(self) -> Vec<u8> {
        const ALPHA: u8 = 1 << 4;
        let has_alpha = self.chunks.starts_with(b"ALPH");
        let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
        // A lossless image says itself whether it has alpha; a lossy one needs the extended header for it.
        if has_alpha {
            file.extend(b"VP8X\x0A\0\0\0");
            file.extend([ALPHA, 0, 0, 0]);
            file.extend(self.size);
        }
        file.extend(self.chunks);
        let riff_size = (file.len() - 8) as u32;
        file[4..8].copy_from_slice(&riff_size.to_le_bytes());
        file
    }
}

/// The chunks of a RIFF body: kind and content. Ends at the first one that is cut short.
struct Chunks<'a>(&'a [u8]);

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, rest) = self.0.split_first_chunk::<4>()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let size = u32::from_le_bytes(*size) as usize;
        let body = rest.get(..size)?;
        self.0 = rest.get(size + size % 2..).unwrap_or_default();
        Some((kind, body))
    }
}

fn u24(bytes: &[u8], at: usize) -> Result<u32, Failure> {
    let bytes = bytes.get(at..at + 3).ok_or(INVALID)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]))
}
