//! The EXIF orientation: which way up a camera was held.

use super::ifd::Reader;
use super::jpeg;
#[cfg(feature = "webp")]
use super::webp;
use crate::image::RgbImage;

/// The tag of the orientation, and the types that its value may have.
const ORIENTATION: u16 = 274;
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// What the EXIF data of a JPEG, PNG or WebP file says; 1, upright, where it says nothing or is damaged.
///
/// Only this one value is read, where it stands: a parser of all EXIF data can be made to take memory beyond any budget.
pub(super) fn stored(file: &[u8]) -> u16 {
    let exif = match file {
        [0xFF, 0xD8, ..] => jpeg::exif(file),
        [0x89, b'P', b'N', b'G', ..] => exif_of_png(file),
        #[cfg(feature = "webp")]
        [b'R', b'I', b'F', b'F', ..] => webp::exif(file),
        _ => None,
    };
    exif.and_then(in_exif).unwrap_or(1)
}

/// The content of the chunk `eXIf`.
fn exif_of_png(file: &[u8]) -> Option<&[u8]> {
    let mut rest = file.get(8..)?;
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let content = after.get(..length)?;
        if kind == b"eXIf" {
            return Some(content);
        }
        // Behind the content is a checksum.
        rest = after.get(length.checked_add(4)?..)?;
    }
}

fn in_exif(exif: &[u8]) -> Option<u16> {
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    if !matches!(exif, [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..]) {
        return None;
    }
    let reader = Reader::new(exif);
    let entries = reader.first_directory()?.map_while(|entry| entry);
    let mut orientations = entries.filter(|entry| entry.tag == ORIENTATION && entry.count > 0);
    let entry = orientations.next()?;
    match entry.kind {
        SHORT => reader.short(entry.value),
        LONG => u16::try_from(reader.number(entry.value, 4)?).ok(),
        _ => None,
    }
}

/// Whether such an image is stored in another order than it is shown.
pub(super) fn turns(orientation: u16) -> bool {
    (2..=8).contains(&orientation)
}

/// The image turned and mirrored as the orientation (1 to 8) says.
pub(super) fn upright(image: RgbImage, orientation: u16) -> RgbImage {
    let (w, h) = (image.width, image.height);
    // The stored pixel that is shown at the top left, and how far the next one to the right and the next one below are.
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

    /// What EXIF's table says of each orientation, on
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
