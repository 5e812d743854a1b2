//! Reads and applies the orientation of a picture, which cameras store as EXIF data and editors as XMP.

use super::failure::Failure;
use super::ifd::{Entry, Reader};
use super::memory::Claim;
use super::metadata::Metadata;
#[cfg(feature = "webp")]
use super::webp;
use super::{jpeg, png};
use crate::rgb_image::RgbImage;

/// Tag of the orientation.
const ORIENTATION: u16 = 274;

/// Tag of XMP in a TIFF.
#[cfg(feature = "tiff")]
const XMP: u16 = 700;

const UPRIGHT: u16 = 1;

/// Returns the orientation (1 to 8) of a JPEG, PNG or WebP file by Pillow's rules.
///
/// The EXIF data takes precedence over XMP. A missing, damaged or unknown orientation is upright.
///
/// Only this value is read. Malicious EXIF data can make a full parser exceed any memory budget.
pub(super) fn stored(file: &[u8], claim: &mut Claim<'_>) -> Result<u16, Failure> {
    let metadata = match file {
        [0xFF, 0xD8, ..] => jpeg::metadata(file, claim)?,
        [0x89, b'P', b'N', b'G', ..] => png::metadata(file, claim)?,
        #[cfg(feature = "webp")]
        [b'R', b'I', b'F', b'F', ..] => webp::metadata(file),
        _ => Metadata::default(),
    };
    let in_exif = metadata.exif.and_then(|exif| in_exif(&exif));
    let orientation = in_exif.or_else(|| in_xmp(&metadata.xmp?));
    Ok(orientation.unwrap_or(UPRIGHT))
}

/// Returns the orientation of a TIFF file's first page. It may be in the XMP.
#[cfg(feature = "tiff")]
pub(super) fn of_tiff(file: &[u8]) -> u16 {
    let reader = Reader::new(file);
    let in_directory = in_directory(&reader);
    let in_xmp = || in_xmp(reader.bytes_of(&find(&reader, XMP)?)?);
    in_directory.or_else(in_xmp).unwrap_or(UPRIGHT)
}

/// Returns the orientation in EXIF data, or `None` if it has none. Returns upright if the bytes are not EXIF data.
fn in_exif(exif: &[u8]) -> Option<u16> {
    const PREFIX: &[u8] = b"Exif\0\0";
    let exif = exif.strip_prefix(PREFIX).unwrap_or(exif);
    let exif = exif.strip_prefix(PREFIX).unwrap_or(exif);
    match exif {
        [] => None,
        [b'I', b'I', 42, 0, _, _, _, _, ..] | [b'M', b'M', 0, 42, _, _, _, _, ..] => {
            in_directory(&Reader::new(exif))
        }
        // Pillow accepts these magic numbers, which no standard defines.
        [b'I', b'I', 0, 42, _, _, _, _, ..] | [b'M', b'M', 42, 0, _, _, _, _, ..] => {
            in_directory(&Reader::new(exif))
        }
        _ => Some(UPRIGHT),
    }
}

/// Returns the orientation in the first directory, which is upright unless it is a number from 1 to 8.
fn in_directory(reader: &Reader<'_>) -> Option<u16> {
    let entry = find(reader, ORIENTATION)?;
    let value = reader.whole_number(&entry).unwrap_or(0);
    Some(if needs_transform(value) { value } else { UPRIGHT })
}

/// Returns the first entry with the given tag that has a value.
fn find(reader: &Reader<'_>, tag: u16) -> Option<Entry> {
    reader
        .entries()
        .find(|entry| entry.tag == tag && entry.bytes() > 0)
}

/// Returns the digit that Pillow's regular expression `tiff:Orientation(="|>)([0-9])` matches, or `None` without a
/// match.
fn in_xmp(xmp: &[u8]) -> Option<u16> {
    const NAME: &[u8] = b"tiff:Orientation";
    let digit = |at: usize| {
        let rest = xmp[at..].strip_prefix(NAME)?;
        let rest = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?;
        let digit = rest.first().filter(|digit| digit.is_ascii_digit())?;
        Some(u16::from(digit - b'0'))
    };
    (0..xmp.len()).find_map(digit)
}

/// Returns true if an image with this orientation must be rotated or mirrored.
pub(super) fn needs_transform(orientation: u16) -> bool {
    (2..=8).contains(&orientation)
}

/// Rotates and mirrors the image as the orientation (1 to 8) says.
pub(super) fn upright(image: RgbImage, orientation: u16) -> RgbImage {
    let (w, h) = (image.width, image.height);
    // Stored pixel that is shown at the top left, and the distances to the next pixels to the right and below.
    let (right, down) = (1, w as isize);
    let (left, top) = (0, 0);
    let (last, bottom) = (w as isize - 1, (h as isize - 1) * w as isize);
    let (first, along, below) = match orientation {
        2 => (last + top, -right, down),
        3 => (last + bottom, -right, -down),
        4 => (left + bottom, right, -down),
        5 => (left + top, down, right),
        6 => (left + bottom, -down, right),
        7 => (last + bottom, -down, -right),
        8 => (last + top, down, -right),
        _ => return image,
    };
    let (width, height) = if orientation < 5 { (w, h) } else { (h, w) };
    let mut data = Vec::with_capacity(image.data.len());
    for y in 0..height as isize {
        for x in 0..width as isize {
            let at = 3 * (first + x * along + y * below) as usize;
            data.extend_from_slice(&image.data[at..at + 3]);
        }
    }
    RgbImage { width, height, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Meaning of each orientation in EXIF's table, shown on this image:
    /// ```text
    /// 0 1 2
    /// 3 4 5
    /// ```
    #[test]
    fn each_orientation_is_undone() {
        let stored = RgbImage::new(3, 2, (0..6).flat_map(|value| [value; 3]).collect()).unwrap();
        for (orientation, width, shown) in [
            (1, 3, [0, 1, 2, 3, 4, 5]),
            (2, 3, [2, 1, 0, 5, 4, 3]),
            (3, 3, [5, 4, 3, 2, 1, 0]),
            (4, 3, [3, 4, 5, 0, 1, 2]),
            (5, 2, [0, 3, 1, 4, 2, 5]),
            (6, 2, [3, 0, 4, 1, 5, 2]),
            (7, 2, [5, 2, 4, 1, 3, 0]),
            (8, 2, [2, 5, 1, 4, 0, 3]),
            (9, 3, [0, 1, 2, 3, 4, 5]),
        ] {
            let image = upright(stored.clone(), orientation);
            assert_eq!((image.width, image.height), (width, 6 / width), "{orientation}");
            let values: Vec<u8> = image.data.iter().copied().step_by(3).collect();
            assert_eq!(values, shown, "{orientation}");
        }
    }
}
