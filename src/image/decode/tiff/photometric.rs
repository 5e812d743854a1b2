//! What a TIFF's samples mean, read ahead of the decoder.
//!
//! The `tiff` crate refuses palettes and inverts greys in its own way. So in a copy of the file, the photometric tag of
//! such a page is rewritten to "black is zero": the crate then hands out the plain samples, and the meaning is applied
//! to them afterwards.

use std::borrow::Cow;

use super::Failure;

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

/// The meaning of the first page, and the file with that meaning replaced by "black is zero" where it is not `Other`.
pub(super) fn split_off(bytes: &[u8]) -> Result<(Photometric, Cow<'_, [u8]>), Failure> {
    let reader = Reader {
        bytes,
        big_endian: bytes.starts_with(b"M"),
    };
    let at = reader.photometric_at().ok_or(Failure::truncated(
        "the TIFF is truncated: its directory is missing",
    ))?;
    // A file without the tag means "white is zero" to Pillow, but the decoder insists on it.
    let Some(at) = at else {
        return Ok((Photometric::Other, Cow::Borrowed(bytes)));
    };
    let photometric = match reader.short(at) {
        Some(0) => Photometric::WhiteIsZero,
        Some(3) => Photometric::Palette,
        _ => return Ok((Photometric::Other, Cow::Borrowed(bytes))),
    };
    let mut copy = bytes.to_vec();
    let value = if reader.big_endian {
        [0, BLACK_IS_ZERO]
    } else {
        [BLACK_IS_ZERO, 0]
    };
    // In bounds, since the value was just read from there.
    copy[at..at + 2].copy_from_slice(&value);
    Ok((photometric, Cow::Owned(copy)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl Reader<'_> {
    /// The position of the first directory's photometric value; the outer `None` if the directory is cut off.
    fn photometric_at(&self) -> Option<Option<usize>> {
        let big_tiff = self.short(2)? == 43;
        let (count, entries, entry, value) = if big_tiff {
            let directory = self.number(8, 8)?;
            (self.number(directory, 8)?, directory.checked_add(8)?, 20, 12)
        } else {
            let directory = self.number(4, 4)?;
            (self.number(directory, 2)?, directory.checked_add(2)?, 12, 8)
        };
        for index in 0..count {
            let at = entries.checked_add(index.checked_mul(entry)?)?;
            if self.short(at)? == PHOTOMETRIC {
                return Some(Some(at + value));
            }
        }
        Some(None)
    }

    fn short(&self, at: usize) -> Option<u16> {
        self.number(at, 2).map(|value| value as u16)
    }

    fn number(&self, at: usize, length: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..at.checked_add(length)?)?;
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let value = if self.big_endian {
            bytes.iter().fold(0, push)
        } else {
            bytes.iter().rev().fold(0, push)
        };
        usize::try_from(value).ok()
    }
}
