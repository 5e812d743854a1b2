//! Reads image file directories: lists of tags in TIFF files, and in the EXIF data of other formats.

/// Reads numbers and the first directory of a TIFF file, or of EXIF data, which has the same structure.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

/// Layout of the first directory.
struct Form {
    /// Number of entries.
    count: usize,
    /// Position of the first entry.
    entries: usize,
    /// Number of bytes of an entry.
    entry: usize,
    offset: usize,
}

/// A tag with its values.
pub(super) struct Entry {
    pub(super) tag: u16,
    /// Type of the values.
    pub(super) kind: u16,
    /// Number of values.
    pub(super) count: usize,
    /// Position of the values if they fit into the entry, otherwise of their offset.
    pub(super) value: usize,
    /// Number of bytes of an offset, up to which values are stored in the entry.
    pub(super) inline: usize,
}

impl Entry {
    /// Returns the number of bytes of the values, or 0 if their type is unknown.
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

    fn form(&self) -> Option<Form> {
        if self.is_big_tiff() {
            let directory = self.number(8, 8)?;
            Some(Form {
                count: self.number(directory, 8)?,
                entries: directory.checked_add(8)?,
                entry: 20,
                offset: 8,
            })
        } else {
            let directory = self.number(4, 4)?;
            Some(Form {
                count: self.number(directory, 2)?,
                entries: directory.checked_add(2)?,
                entry: 12,
                offset: 4,
            })
        }
    }

    #[cfg(feature = "tiff")]
    pub(super) fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    pub(super) fn is_big_tiff(&self) -> bool {
        self.short(2) == Some(43)
    }

    /// Returns true if the number of entries of the first directory can be read.
    #[cfg(feature = "tiff")]
    pub(super) fn has_directory(&self) -> bool {
        self.form().is_some()
    }

    /// Returns true if all entries of the first directory, and the offset of the next directory, can be read.
    #[cfg(feature = "tiff")]
    pub(super) fn has_whole_directory(&self) -> bool {
        let end = self.form().and_then(|form| {
            let next = form.entries.checked_add(form.count.checked_mul(form.entry)?)?;
            self.number(next, form.offset)
        });
        end.is_some() && self.has_whole_entries()
    }

    /// Returns true if all entries of the first directory can be read.
    #[cfg(feature = "tiff")]
    pub(super) fn has_whole_entries(&self) -> bool {
        self.form()
            .is_some_and(|form| self.entries().count() == form.count)
    }

    /// Iterates over the entries of the first directory that Pillow reads.
    ///
    /// Stops at the first entry that is cut off or lacks its values. Skips an entry if its values, together with those of
    /// the entries before it, have more bytes than the file.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        let form = self.form();
        let count = form.as_ref().map_or(0, |form| form.count);
        let entry = move |index: usize| {
            let form = form.as_ref()?;
            let at = form.entries.checked_add(index.checked_mul(form.entry)?)?;
            // The whole entry must be present.
            self.bytes.get(at..at.checked_add(form.entry)?)?;
            let value = form.entry - form.offset;
            Some(Entry {
                tag: self.short(at)?,
                kind: self.short(at + 2)?,
                count: self.number(at + 4, value - 4)?,
                value: at + value,
                inline: form.offset,
            })
        };
        let mut listed = 0_usize;
        let entries = (0..count).map_while(entry).map_while(move |entry| {
            if entry.bytes() > entry.inline {
                listed = listed.saturating_add(entry.bytes());
                if listed > self.bytes.len() {
                    return Some(None);
                }
                self.bytes_of(&entry)?;
            }
            Some(Some(entry))
        });
        entries.flatten()
    }

    /// Returns the bytes of an entry in its directory.
    #[cfg(feature = "tiff")]
    pub(super) fn entry(&self, entry: &Entry) -> &'a [u8] {
        let end = entry.value + entry.inline;
        // A BigTIFF entry has 20 bytes. The last 8 are the value.
        let length = if entry.inline == 8 { 20 } else { 12 };
        self.bytes.get(end - length..end).unwrap_or_default()
    }

    pub(super) fn short(&self, at: usize) -> Option<u16> {
        self.number(at, 2).map(|value| value as u16)
    }

    /// Reads the number of `length` bytes at `at`.
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

    /// Returns the bytes of an entry's values, or `None` if some are missing.
    pub(super) fn bytes_of(&self, entry: &Entry) -> Option<&'a [u8]> {
        let at = if entry.bytes() > entry.inline {
            self.number(entry.value, entry.inline)?
        } else {
            entry.value
        };
        self.bytes.get(at..at.checked_add(entry.bytes())?)
    }

    /// Returns the values of an entry if they are shorts or longs.
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

    /// Returns the first value of an entry if it is a whole number from 0 to 65,535. It may be stored as a fraction.
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
