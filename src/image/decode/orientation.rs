//! The EXIF orientation: which way up a camera was held.

use std::io::Cursor;

use exif::{In, Reader, Tag};

use crate::image::RgbImage;

/// What the EXIF data of a JPEG, PNG or WebP file says; 1, upright, where it says nothing or is damaged.
pub(super) fn stored(file: &[u8]) -> u16 {
    let exif = Reader::new()
        .continue_on_error(true)
        .read_from_container(&mut Cursor::new(file))
        // One damaged field leaves the others.
        .or_else(|error| error.distill_partial_result(|_| ()));
    let value = exif.ok().and_then(|exif| {
        let field = exif.get_field(Tag::Orientation, In::PRIMARY)?;
        field.value.get_uint(0)
    });
    value.and_then(|value| u16::try_from(value).ok()).unwrap_or(1)
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
