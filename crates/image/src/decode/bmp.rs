//! Decodes Windows and OS/2 bitmaps with 1, 4, 8, 16, 24 and 32 bits per pixel, run-length coding, and the bit masks
//! that Pillow supports.
//!
//! Pillow supports fewer of the many variants than general decoders do, so this decoder is not a library's.

use super::cancellation::Cancellation;
use super::color;
use super::failure::Failure;
use super::memory::Claim;
use crate::rgb_image::RgbImage;

const TRUNCATED: Failure = Failure::truncated("the BMP is truncated");

const RAW: u32 = 0;
const RLE8: u32 = 1;
const RLE4: u32 = 2;
const BITFIELDS: u32 = 3;

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>) -> Result<RgbImage, Failure> {
    let header = Header::read(bytes)?;
    let (width, height) = claim.check(header.width, header.height)?;
    // Memory for indices or packed samples, and for pixels.
    claim.reserve((width as u64 * height as u64).saturating_mul(4))?;
    let (offset, palette) = header.offset_and_palette(bytes)?;

    let bits = usize::from(header.bits);
    let row_bytes = (width * bits).div_ceil(32) * 4;
    let used = (width * bits).div_ceil(8);
    // The padding of the last row may be missing.
    let rows = || {
        let rows = bytes
            .get(offset..)
            .and_then(|rest| rest.get(..row_bytes * (height - 1) + used));
        let rows = rows.ok_or(TRUNCATED)?.chunks(row_bytes);
        Ok::<_, Failure>(rows.map(|row| &row[..used]))
    };
    let mut data = match (header.compression, bits) {
        (RLE8, 8) | (RLE4, 4) => {
            let coded = bytes.get(offset..).ok_or(TRUNCATED)?;
            color::palette(
                width * height,
                run_lengths(coded, offset, [width, height], bits == 4, claim.cancellation())?.into_iter(),
                &palette,
            )
        }
        (RAW, 1 | 4 | 8) => {
            let mut packed = Vec::with_capacity(used * height);
            rows()?.for_each(|row| packed.extend_from_slice(row));
            color::palette(width * height, color::unpack(&packed, width, bits), &palette)
        }
        (RAW | BITFIELDS, 16 | 24 | 32) => {
            let unpack = header.unpacker()?;
            let pixels = rows()?.flat_map(|row| row.chunks_exact(bits / 8).map(unpack));
            color::rgb(width * height, pixels)
        }
        (compression, _) => {
            let reason = format!("a BMP of {bits} bits with compression {compression}");
            return Err(Failure::unsupported(reason));
        }
    };
    if !header.top_down {
        let mut rows = data.chunks_exact_mut(width * 3);
        while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
            upper.swap_with_slice(lower);
        }
    }
    Ok(RgbImage { width, height, data })
}

struct Header {
    /// Length of the header itself, after the first 14 bytes of the file.
    size: usize,
    /// Offset of the pixels according to the file. 0 means that they follow the palette.
    offset: usize,
    width: u32,
    height: u32,
    top_down: bool,
    bits: u16,
    compression: u32,
    /// Number of palette entries.
    colors: usize,
    /// Masks of red, green, blue and alpha, if the compression uses bit masks.
    masks: [u32; 4],
    /// Number of bytes before the palette: the headers, and masks that follow a header too short for them.
    end: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let offset = u32_at(bytes, 10)? as usize;
        let size = u32_at(bytes, 14)? as usize;
        let mut header = Self {
            size,
            offset,
            width: 0,
            height: 0,
            top_down: false,
            bits: 0,
            compression: RAW,
            colors: 0,
            masks: [0; 4],
            end: 14 + size,
        };
        match size {
            12 => {
                header.width = u16_at(bytes, 18)?.into();
                header.height = u16_at(bytes, 20)?.into();
                header.bits = u16_at(bytes, 24)?;
            }
            40 | 52 | 56 | 64 | 108 | 124 => {
                header.width = u32_at(bytes, 18)?;
                header.height = u32_at(bytes, 22)?;
                // A negative height, in practice above −2²⁴, means that the top row comes first.
                header.top_down = header.height >> 24 == 0xFF;
                if header.top_down {
                    header.height = header.height.wrapping_neg();
                }
                header.bits = u16_at(bytes, 28)?;
                header.compression = u32_at(bytes, 30)?;
                header.colors = u32_at(bytes, 46)? as usize;
                if header.compression == BITFIELDS {
                    let masks = if size >= 56 { 4 } else { 3 };
                    for (at, mask) in header.masks.iter_mut().take(masks).enumerate() {
                        *mask = u32_at(bytes, 54 + 4 * at)?;
                    }
                    if size < 52 {
                        header.end += 12;
                    }
                }
            }
            other => return Err(Failure::unsupported(format!("a BMP header of {other} bytes"))),
        }
        if header.colors == 0 {
            header.colors = 1 << header.bits.min(16);
        }
        Ok(header)
    }

    /// Returns the offset of the pixels, and the palette as RGB. The palette is empty above 8 bits per pixel.
    fn offset_and_palette(&self, bytes: &[u8]) -> Result<(usize, Vec<u8>), Failure> {
        let entry = if self.size == 12 { 3 } else { 4 };
        let palette_end = self.end + if self.bits <= 8 { self.colors * entry } else { 0 };
        let offset = match self.offset {
            0 => palette_end,
            // Some writers give an offset that ignores the palette between the header and the pixels.
            offset if offset == 14 + self.size => palette_end,
            offset => offset,
        };
        if self.bits > 8 {
            return Ok((offset, Vec::new()));
        }
        if self.colors > 65536 {
            return Err(format!("a BMP palette of {} colours", self.colors).into());
        }
        let stored = bytes
            .get(self.end..palette_end.min(bytes.len()))
            .ok_or(TRUNCATED)?;
        let palette: Vec<u8> = stored
            .chunks_exact(entry)
            .flat_map(|bgr| [bgr[2], bgr[1], bgr[0]])
            .collect();
        let ramp = |grey: u8| [grey; 3];
        // Pillow drops a palette that is a ramp of greys, so indices beyond it are greys too.
        if self.bits == 8
            && palette
                .chunks_exact(3)
                .zip(0..=255)
                .all(|(color, grey)| color == ramp(grey))
        {
            return Ok((offset, (0..=255).flat_map(ramp).collect()));
        }
        Ok((offset, palette))
    }

    /// Returns the function that reads a pixel of more than 8 bits.
    fn unpacker(&self) -> Result<Unpacker, Failure> {
        let [red, green, blue, alpha] = self.masks;
        if self.compression == RAW {
            return Ok(if self.bits == 16 {
                rgb555
            } else {
                |bgr| [bgr[2], bgr[1], bgr[0]]
            });
        }
        Ok(match (self.bits, red, green, blue, alpha) {
            (32, 0xFF_0000, 0xFF00, 0xFF, 0 | 0xFF00_0000)
            | (32, 0, 0, 0, 0)
            | (24, 0xFF_0000, 0xFF00, 0xFF, _) => |bgr| [bgr[2], bgr[1], bgr[0]],
            (32, 0xFF00_0000, 0xFF_0000, 0xFF00, 0 | 0xFF) => |abgr| [abgr[3], abgr[2], abgr[1]],
            (32, 0xFF00_0000, 0xFF00, 0xFF, 0 | 0xFF_0000) => |bgar| [bgar[3], bgar[1], bgar[0]],
            (32, 0xFF, 0xFF00, 0xFF_0000, 0xFF00_0000) => |rgba| [rgba[0], rgba[1], rgba[2]],
            (16, 0xF800, 0x7E0, 0x1F, _) => rgb565,
            (16, 0x7C00, 0x3E0, 0x1F, _) => rgb555,
            _ => {
                return Err(Failure::unsupported(format!(
                    "a BMP with the bit masks {red:x}, {green:x}, {blue:x}, {alpha:x}"
                )));
            }
        })
    }
}

/// Converts the bytes of one pixel to RGB.
type Unpacker = fn(&[u8]) -> [u8; 3];

fn rgb555(pixel: &[u8]) -> [u8; 3] {
    let pixel = u16::from_le_bytes([pixel[0], pixel[1]]);
    [pixel >> 10, pixel >> 5, pixel].map(|value| ((value & 31) * 255 / 31) as u8)
}

fn rgb565(pixel: &[u8]) -> [u8; 3] {
    let pixel = u16::from_le_bytes([pixel[0], pixel[1]]);
    let five = |value: u16| ((value & 31) * 255 / 31) as u8;
    [
        five(pixel >> 11),
        ((pixel >> 5 & 63) * 255 / 63) as u8,
        five(pixel),
    ]
}

/// Decodes run-length coded rows to indices. The bottom row comes first.
///
/// `offset` is the position of the code in the file. Literals are padded to an even position in the file.
fn run_lengths(
    coded: &[u8],
    offset: usize,
    [width, height]: [usize; 2],
    nibbles: bool,
    cancellation: Cancellation<'_>,
) -> Result<Vec<u8>, Failure> {
    let total = width * height;
    let mut pixels: Vec<u8> = Vec::with_capacity(total);
    let mut rest = coded;
    let mut x = 0;
    while pixels.len() < total {
        let Some((&[count, value], after)) = rest.split_first_chunk::<2>() else {
            break;
        };
        rest = after;
        match (count, value) {
            (0, 0) => {
                cancellation.check()?;
                pixels.resize(pixels.len().next_multiple_of(width), 0);
                x = 0;
            }
            (0, 1) => break,
            (0, 2) => {
                let Some((&[right, up], after)) = rest.split_first_chunk::<2>() else {
                    break;
                };
                rest = after;
                let skipped = usize::from(right) + usize::from(up) * width;
                pixels.resize((pixels.len() + skipped).min(total), 0);
                x = pixels.len() % width;
            }
            (0, literals) => {
                let count = usize::from(literals).min(total - pixels.len());
                let stored = if nibbles { count.div_ceil(2) } else { count };
                let (literal, after) = rest.split_at_checked(stored).ok_or(TRUNCATED)?;
                if nibbles {
                    pixels.extend(color::unpack(literal, stored * 2, 4).take(count));
                } else {
                    pixels.extend(literal);
                }
                x += usize::from(literals);
                rest = after;
                if (offset + coded.len() - rest.len()) % 2 == 1 {
                    rest = rest.get(1..).unwrap_or_default();
                }
            }
            (run, value) => {
                let run = usize::from(run)
                    .min(width.saturating_sub(x))
                    .min(total - pixels.len());
                let pair = if nibbles {
                    [value >> 4, value & 15]
                } else {
                    [value; 2]
                };
                pixels.extend(pair.iter().cycle().take(run));
                x += run;
            }
        }
    }
    if pixels.len() < total {
        Err(TRUNCATED)
    } else {
        Ok(pixels)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Failure> {
    let bytes = bytes.get(at..at + 2).ok_or(TRUNCATED)?;
    Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Failure> {
    Ok(u32::from(u16_at(bytes, at)?) | u32::from(u16_at(bytes, at + 2)?) << 16)
}
