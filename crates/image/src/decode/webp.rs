//! Decodes WebP with `image-webp`: lossy, lossless, and the first frame of an animation.
//!
//! The container is parsed here by libwebp's rules, which tolerate wrong flags, sizes and unknown chunks if no pixel
//! depends on them. The decoder gets a simple file that contains only the picture's chunk, because alpha is dropped
//! anyway. The first frame of an animation is placed on a transparent black canvas, without blending.

mod partitions;
mod prefix_codes;

use std::borrow::Cow;
use std::io::{Cursor, ErrorKind};

use image_webp::WebPDecoder;

use super::cancellation::Cancellation;
use super::color;
use super::failure::Failure;
use super::memory::Claim;
use super::metadata::Metadata;
use crate::rgb_image::RgbImage;

const INVALID: &str = "damaged or truncated WebP";
const DAMAGED_PIXELS: &str = "damaged or truncated WebP: its compressed pixel data is damaged";
const CUT: Failure = Failure::truncated("the WebP is truncated: its frame is cut short");

/// Flags of a `VP8X` header.
const ANIMATION: u8 = 1 << 1;
const XMP: u8 = 1 << 2;
const EXIF: u8 = 1 << 3;

/// Number of bytes before the chunks: `RIFF`, the size, `WEBP`.
const RIFF_HEADER: usize = 12;

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    let bytes = contained(bytes).ok_or(Failure::truncated("the WebP is truncated"))?;
    let picture = Picture::find(bytes)?;
    let (width, height) = claim.check(picture.canvas.0, picture.canvas.1)?;
    let (left, top) = (picture.left, picture.top);
    let frame_end = (
        left + picture.frame.size.0 as usize,
        top + picture.frame.size.1 as usize,
    );
    if frame_end.0 > width || frame_end.1 > height {
        return Err(format!("{INVALID}: the first frame extends beyond the canvas").into());
    }
    if picture.frame.lossy && !partitions::are_complete(picture.frame.content) {
        return Err(CUT);
    }
    let fills_canvas = (left, top) == (0, 0) && frame_end == (width, height);
    let canvas = if fills_canvas {
        0
    } else {
        (width as u64 * height as u64).saturating_mul(3)
    };
    // Memory for the copy of the frame, and for the canvas.
    let beside = (picture.frame.file_bytes() as u64).saturating_add(canvas);
    let codes = picture.frame.code_memory(claim.cancellation())?;
    let memory = picture.frame.memory().saturating_add(codes.unwrap_or(0));
    claim.reserve(memory.saturating_add(beside))?;
    if codes.is_none() {
        return Err(DAMAGED_PIXELS.into());
    }
    let image = still(&picture.frame.file(), claim)?;
    if fills_canvas {
        return Ok(image);
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

/// Returns the file up to the end that its header states. Returns `None` if the file is shorter, which libwebp rejects.
fn contained(bytes: &[u8]) -> Option<&[u8]> {
    let size = bytes.get(4..8)?.try_into().ok().map(u32::from_le_bytes)?;
    bytes.get(..usize::try_from(size).ok()?.checked_add(8)?)
}

/// Decodes a simple file within the reserved memory.
fn still(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    let reason = |error: image_webp::DecodingError| match error {
        image_webp::DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Failure::truncated("the WebP is truncated")
        }
        // The messages of the decoder contain bytes in Rust's `Debug` form, so they are replaced.
        _ => DAMAGED_PIXELS.into(),
    };
    let mut decoder = WebPDecoder::new(claim.cancellation().reader(Cursor::new(bytes))).map_err(reason)?;
    let (width, height) = decoder.dimensions();
    let (width, height) = claim.check(width, height)?;
    let alpha = decoder.has_alpha();
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

/// Returns the EXIF data and the XMP if the header's flags say that they are present.
pub(super) fn metadata(file: &[u8]) -> Metadata<'_> {
    let chunks = || {
        Chunks(
            contained(file)
                .and_then(|file| file.get(RIFF_HEADER..))
                .unwrap_or_default(),
        )
    };
    let flags = match chunks().next() {
        Some((b"VP8X", &[flags, ..])) => flags,
        _ => 0,
    };
    let content = |flag: u8, wanted: &[u8; 4]| {
        let mut chunks = chunks().filter(|_| flags & flag != 0);
        let (_, content) = chunks.find(|(kind, _)| *kind == wanted)?;
        (!content.is_empty()).then_some(Cow::Borrowed(content))
    };
    Metadata {
        exif: content(EXIF, b"EXIF"),
        xmp: content(XMP, b"XMP "),
    }
}

/// The picture that is shown: a still picture, or the first frame of an animation.
struct Picture<'a> {
    /// Width and height of the canvas.
    canvas: (u32, u32),
    left: usize,
    top: usize,
    frame: Frame<'a>,
}

impl<'a> Picture<'a> {
    fn find(bytes: &'a [u8]) -> Result<Self, Failure> {
        let mut chunks = Chunks(bytes.get(RIFF_HEADER..).ok_or(CUT)?);
        let first = Chunks(chunks.0).next().ok_or(CUT)?;
        if let Some(frame) = Frame::parse(first)? {
            return Ok(Self {
                canvas: frame.size,
                left: 0,
                top: 0,
                frame,
            });
        }
        let (b"VP8X", header) = first else {
            return Err(format!("{INVALID}: its first chunk is not VP8, VP8L or VP8X").into());
        };
        let canvas = (u24(header, 4)? + 1, u24(header, 7)? + 1);
        let animated = header.first().is_some_and(|flags| flags & ANIMATION != 0);
        for (kind, content) in chunks.by_ref().skip(1) {
            if kind == b"ANMF" && animated {
                return Self::first_frame(canvas, content);
            }
            if let Some(frame) = Frame::parse((kind, content))? {
                if !animated && frame.size != canvas {
                    return Err(format!("{INVALID}: the sizes of the frame and the canvas differ").into());
                }
                return Ok(Self {
                    canvas,
                    left: 0,
                    top: 0,
                    frame,
                });
            }
        }
        Err(match chunks.0 {
            [] => format!("{INVALID}: it has no picture").into(),
            _ => CUT,
        })
    }

    /// Finds the picture in the content of a frame chunk.
    fn first_frame(canvas: (u32, u32), content: &'a [u8]) -> Result<Self, Failure> {
        let (left, top) = (u24(content, 0)? as usize * 2, u24(content, 3)? as usize * 2);
        let size = (u24(content, 6)? + 1, u24(content, 9)? + 1);
        for chunk in Chunks(content.get(16..).ok_or(CUT)?) {
            if let Some(frame) = Frame::parse(chunk)? {
                if frame.size != size {
                    return Err(format!("{INVALID}: the first frame states two different sizes").into());
                }
                return Ok(Self {
                    canvas,
                    left,
                    top,
                    frame,
                });
            }
        }
        Err(CUT)
    }
}

/// The chunk of a picture.
struct Frame<'a> {
    lossy: bool,
    /// Width and height that the chunk states.
    size: (u32, u32),
    content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses the chunk of a picture. Returns `None` for other kinds of chunks.
    fn parse((kind, content): (&[u8; 4], &'a [u8])) -> Result<Option<Self>, Failure> {
        let lossy = match kind {
            b"VP8 " => true,
            b"VP8L" => false,
            _ => return Ok(None),
        };
        let size = if lossy {
            let &[.., w0, w1, h0, h1] = content.first_chunk::<10>().ok_or(CUT)?;
            let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3FFF);
            (side(w0, w1), side(h0, h1))
        } else {
            let &[_, bits @ ..] = content.first_chunk::<5>().ok_or(CUT)?;
            let bits = u32::from_le_bytes(bits);
            ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        };
        Ok(Some(Self { lossy, size, content }))
    }

    /// Builds a simple file that contains only this chunk.
    fn file(&self) -> Vec<u8> {
        let padded = self.content.len().next_multiple_of(2);
        let mut file = Vec::with_capacity(self.file_bytes());
        file.extend(b"RIFF");
        file.extend((4 + 8 + padded as u32).to_le_bytes());
        file.extend(b"WEBP");
        file.extend(if self.lossy { b"VP8 " } else { b"VP8L" });
        file.extend((self.content.len() as u32).to_le_bytes());
        file.extend(self.content);
        file.resize(self.file_bytes(), 0);
        file
    }

    /// Returns the length of the file that [`Frame::file`] builds.
    fn file_bytes(&self) -> usize {
        RIFF_HEADER + 8 + self.content.len().next_multiple_of(2)
    }

    /// Returns the number of bytes that the decoder needs for prefix codes and colour caches, or `None` if the codes
    /// are damaged.
    fn code_memory(&self, cancellation: Cancellation<'_>) -> Result<Option<u64>, Failure> {
        if self.lossy {
            return Ok(Some(0));
        }
        prefix_codes::memory(self.content, self.size, cancellation)
    }

    /// Returns the number of bytes that the decoder needs for everything but the codes, including the pixels.
    fn memory(&self) -> u64 {
        let (width, height) = (u64::from(self.size.0), u64::from(self.size.1));
        let pixels = width * height;
        // Macroblocks of 16×16, chroma at half the size.
        let planes = width.next_multiple_of(16) * height.next_multiple_of(16) * 3 / 2;
        let per_pixel = if self.lossy {
            3
        } else {
            // RGB or RGBA, 4-byte samples, transforms, and the entropy image of blocks of at least 4×4.
            4 + 4 + 2
        };
        // The decoder copies chunks.
        planes + pixels * per_pixel + self.file_bytes() as u64
    }
}

/// Iterator over the chunks of a RIFF body: kind and content. Ends at the first chunk that is cut off.
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
