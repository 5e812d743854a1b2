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
    /// Position of the values, if they are as small as an offset; else of their offset.
    pub(super) value: usize,
    /// Bytes of an offset.
    pub(super) inline: usize,
}

impl Entry {
    /// Bytes of the values. 0 if their type is unknown.
    pub(super) fn bytes(&self) -> usize {
        let bytes = match self.kind {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16 => 8,
            _ => 0,
        };
        self.count.saturating_mul(bytes)
    }
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
            // The whole entry must be there.
            self.bytes.get(at..at.checked_add(entry)?)?;
            Some(Entry {
                tag: self.short(at)?,
                kind: self.short(at + 2)?,
                count: self.number(at + 4, value - 4)?,
                value: at + value,
                inline: entry - value,
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

    /// The bytes of an entry's values. `None` if some are missing.
    pub(super) fn bytes_of(&self, entry: &Entry) -> Option<&'a [u8]> {
        let at = if entry.bytes() > entry.inline {
            self.number(entry.value, entry.inline)?
        } else {
            entry.value
        };
        self.bytes.get(at..at.checked_add(entry.bytes())?)
    }

    /// The values of an entry, if they are shorts or longs.
    #[cfg(feature = "tiff")]
    pub(super) fn unsigned(&self, entry: &Entry) -> Option<Vec<usize>> {
        let length = match entry.kind {
            3 => 2,
            4 | 13 => 4,
            16 => 8,
            _ => return None,
        };
        let values = Reader {
            bytes: self.bytes_of(entry)?,
            big_endian: self.big_endian,
        };
        (0..entry.count)
            .map(|index| values.number(index * length, length))
            .collect()
    }

    /// The first value of an entry, if it is a whole number from 0 to 65,535, be it stored as a fraction.
    pub(super) fn whole_number(&self, entry: &Entry) -> Option<u16> {
        let values = self.bytes_of(entry)?;
        let number = |at: usize, length: usize| {
            let bytes = values.get(at..at + length)?.iter();
            let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
            Some(if self.big_endian {
                bytes.fold(0, push)
            } else {
                bytes.rev().fold(0, push)
            })
        };
        let value = match entry.kind {
            6 => i128::from(number(0, 1)? as i8),
            3 => i128::from(number(0, 2)?),
            8 => i128::from(number(0, 2)? as i16),
            4 | 13 => i128::from(number(0, 4)?),
            9 => i128::from(number(0, 4)? as i32),
            16 => i128::from(number(0, 8)?),
            5 => quotient(number(0, 4)? as i64, number(4, 4)? as i64)?,
            10 => quotient((number(0, 4)? as i32).into(), (number(4, 4)? as i32).into())?,
            11 => whole(f32::from_bits(number(0, 4)? as u32).into())?,
            12 => whole(f64::from_bits(number(0, 8)?))?,
            _ => return None,
        };
        u16::try_from(value).ok()
    }
}

fn quotient(numerator: i64, denominator: i64) -> Option<i128> {
    (denominator != 0 && numerator % denominator == 0).then(|| (numerator / denominator).into())
}

fn whole(value: f64) -> Option<i128> {
    (value.fract() == 0.0).then_some(value as i128)
}
