//! A TIFF's first directory, read ahead of the decoder: what the samples mean, and how much memory its values take.
//!
//! The `tiff` crate refuses palettes and inverts greys in its own way. So in a copy of the file, the photometric tag of
//! such a page is rewritten to "black is zero": the crate then hands out the plain samples, and the meaning is applied
//! to them afterwards. It also allocates as many values as an entry promises, before it reads them.

use std::borrow::Cow;

use crate::image::decode::Failure;
use crate::image::decode::ifd::Reader;

/// The meanings that the decoder is not to know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Photometric {
    /// Greys, 0 is white.
    WhiteIsZero,
    /// Indices of the colour map.
    Palette,
    /// Anything else.
    Other,
}

const PHOTOMETRIC: u16 = 262;
const BLACK_IS_ZERO: u8 = 1;

/// The tags that the decoder and we read, in the order of TIFF 6.0: sizes, sample formats, strips and tiles, colour map,
/// tables of JPEGs, subsampling. Any of them may promise many values.
const READ: [u16; 21] = [
    256, 257, 258, 259, 262, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339, 347, 530,
];

/// What is read ahead.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    pub(super) photometric: Photometric,
    /// The file, with that meaning replaced by "black is zero" where it is not `Other`.
    pub(super) file: Cow<'a, [u8]>,
    /// The number of values of the longest list.
    pub(super) longest: u64,
}

/// Reads the first page's directory.
pub(super) fn read_ahead(bytes: &[u8]) -> Result<Directory<'_>, Failure> {
    let reader = Reader::new(bytes);
    let (at, longest) = facts(&reader, bytes.len())
        .ok_or(Failure::truncated(
            "the TIFF is truncated: its directory is missing",
        ))?
        .map_err(|tag| {
            Failure::truncated_by(format!(
                "the TIFF is truncated: the values of its tag {tag} are missing"
            ))
        })?;
    let other = Directory {
        photometric: Photometric::Other,
        file: Cow::Borrowed(bytes),
        longest,
    };
    // A file without the tag means "white is zero" to Pillow, but the decoder insists on it.
    let Some(at) = at else { return Ok(other) };
    let photometric = match reader.short(at) {
        Some(0) => Photometric::WhiteIsZero,
        Some(3) => Photometric::Palette,
        _ => return Ok(other),
    };
    let mut copy = bytes.to_vec();
    let value = if bytes.starts_with(b"M") {
        [0, BLACK_IS_ZERO]
    } else {
        [BLACK_IS_ZERO, 0]
    };
    // In bounds, since the value was just read from there.
    copy[at..at + 2].copy_from_slice(&value);
    Ok(Directory {
        photometric,
        file: Cow::Owned(copy),
        longest,
    })
}

/// The position of the photometric value, if there is one, and the number of values of the longest list.
type Facts = (Option<usize>, u64);

/// `None` if the directory is cut off; the tag of a list that is.
fn facts(reader: &Reader<'_>, length: usize) -> Option<Result<Facts, u16>> {
    let (mut photometric, mut longest) = (None, 0);
    for entry in reader.first_directory()? {
        let entry = entry?;
        if entry.tag == PHOTOMETRIC {
            photometric = photometric.or(Some(entry.value));
        }
        if READ.contains(&entry.tag) {
            let bytes = entry.count.checked_mul(value_bytes(entry.kind));
            if bytes.is_none_or(|bytes| bytes > length) {
                return Some(Err(entry.tag));
            }
            longest = longest.max(entry.count as u64);
        }
    }
    Some(Ok((photometric, longest)))
}

/// Bytes of a value of this type.
fn value_bytes(kind: u16) -> usize {
    match kind {
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16 | 17 | 18 => 8,
        _ => 1,
    }
}
