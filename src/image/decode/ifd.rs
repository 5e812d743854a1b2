//! Image file directories: the lists of tags in TIFF files, and in the EXIF data of other formats.

/// Reads numbers and the first directory of a TIFF file, or of EXIF data, which has the same form.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

/// A tag with its values.
pub(super) struct Entry {
    pub(super) tag: u16,
    /// The values' type.
    pub(super) kind: u16,
    /// The number of values.
    pub(super) count: usize,
    /// Where the values are, if they are as small as an offset; else where their offset is.
    pub(super) value: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            big_endian: bytes.starts_with(b"M"),
        }
    }

    /// The entries of the first directory; `None` in place of one that is cut off.
    pub(super) fn first_directory(&self) -> Option<impl Iterator<Item = Option<Entry>>> {
        let big_tiff = self.short(2)? == 43;
        let (count, entries, entry, value) = if big_tiff {
            let directory = self.number(8, 8)?;
            (self.number(directory, 8)?, directory.checked_add(8)?, 20, 12)
        } else {
            let directory = self.number(4, 4)?;
            (self.number(directory, 2)?, directory.checked_add(2)?, 12, 8)
        };
        Some((0..count).map(move |index: usize| {
            let at = entries.checked_add(index.checked_mul(entry)?)?;
            Some(Entry {
                tag: self.short(at)?,
                kind: self.short(at + 2)?,
                count: self.number(at + 4, value - 4)?,
                value: at + value,
            })
        }))
    }

    pub(super) fn short(&self, at: usize) -> Option<u16> {
        self.number(at, 2).map(|value| value as u16)
    }

    /// The number of `length` bytes at `at`.
    pub(super) fn number(&self, at: usize, length: usize) -> Option<usize> {
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
