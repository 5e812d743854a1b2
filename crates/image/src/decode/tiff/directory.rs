//! Reads the first directory of a TIFF before the `tiff` crate does: the meaning of the samples, and the memory that
//! its values need.
//!
//! The `tiff` crate rejects palettes and inverts greys differently from Pillow. A copy of such a file therefore has its
//! photometric tag changed to "black is zero". The crate then returns the plain samples, which are interpreted
//! afterwards.
//!
//! The crate also allocates as many values as an entry states before it reads them.

use std::borrow::Cow;

use crate::decode::failure::Failure;
use crate::decode::ifd::{Entry, Reader};

/// Meanings of samples that are hidden from the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Photometric {
    /// Greys, where 0 is white.
    WhiteIsZero,
    /// Indices into the colour map.
    Palette,
    /// Anything else.
    Other,
}

const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const FILL_ORDER: u16 = 266;
const STRIP_OFFSETS: u16 = 273;
const STRIP_LENGTHS: u16 = 279;
const TILE_OFFSETS: u16 = 324;
const TILE_LENGTHS: u16 = 325;
const BLACK_IS_ZERO: u8 = 1;

/// Tags that the decoder and this crate read, in the order of TIFF 6.0. Any of them may state a large number of values.
///
/// They are sizes, sample formats, strips and tiles, colour map, JPEG tables, subsampling and bit order.
const READ: [u16; 22] = [
    256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339, 347,
    530,
];

/// Result of reading ahead.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    pub(super) photometric: Photometric,
    /// The file with the bits of compressed bytes in the usual order. The meaning is "black is zero", unless it is
    /// `Other`.
    pub(super) file: Cow<'a, [u8]>,
    /// Positions of the strips or tiles, if they are not compressed.
    pub(super) raw: Option<Vec<usize>>,
    /// True if the lowest bit of each byte of uncompressed strips or tiles comes first.
    pub(super) lowest_bit_first: bool,
    /// Number of values of the longest list.
    pub(super) longest: u64,
}

/// Entries of the first directory that matter here.
#[derive(Default)]
struct Facts {
    compression: u16,
    fill_order: u16,
    /// Position of the photometric value.
    photometric: Option<usize>,
    offsets: Option<Entry>,
    lengths: Option<Entry>,
    longest: u64,
}

/// Returns the number of bytes that reading ahead needs, without the file.
pub(super) fn memory(bytes: &[u8]) -> Result<u64, Failure> {
    let facts = Facts::read(&Reader::new(bytes))?;
    // Offsets and lengths.
    Ok(facts
        .longest
        .saturating_mul(4 * size_of::<usize>() as u64)
        .saturating_add(bytes.len() as u64))
}

/// Reads the directory of the first page.
pub(super) fn read_ahead(bytes: &[u8]) -> Result<Directory<'_>, Failure> {
    const RAW: u16 = 1;
    const JPEG: u16 = 7;
    let reader = Reader::new(bytes);
    let facts = Facts::read(&reader)?;
    let lowest_bit_first = match facts.fill_order {
        1 => false,
        2 => true,
        other => {
            return Err(Failure::unsupported(format!(
                "a TIFF with FillOrder (tag 266) {other}, which is not 1 or 2"
            )));
        }
    };
    // Pillow treats a file without the tag as "white is zero", but the decoder requires the tag.
    let photometric = match facts.photometric.map_or(Some(0), |at| reader.short(at)) {
        Some(0) => Photometric::WhiteIsZero,
        Some(3) => Photometric::Palette,
        _ => Photometric::Other,
    };
    let list = |entry: &Option<Entry>| {
        entry
            .as_ref()
            .and_then(|entry| reader.unsigned(entry))
            .unwrap_or_default()
    };
    let offsets = list(&facts.offsets);
    let mut file = Cow::Borrowed(bytes);
    // Pillow reads compressed pages with libtiff, which requires all entries.
    if facts.compression != RAW && !reader.has_whole_entries() {
        return Err(Failure::truncated(
            "the TIFF is truncated: values of its directory are missing",
        ));
    }
    let lacks_tags = facts.photometric.is_none() || facts.lengths.is_none() && !lowest_bit_first;
    if lacks_tags || !reader.has_whole_directory() {
        file = Cow::Owned(with_whole_directory(bytes, &reader, &facts, &offsets));
    }
    // The decoder reads the directory of the copy, which may differ.
    let patched = Facts::read(&Reader::new(&file))?;
    if let (Photometric::WhiteIsZero | Photometric::Palette, Some(at)) = (photometric, patched.photometric) {
        let value = if bytes.starts_with(b"M") {
            [0, BLACK_IS_ZERO]
        } else {
            [BLACK_IS_ZERO, 0]
        };
        // In bounds, because the value was just read from there.
        file.to_mut()[at..at + 2].copy_from_slice(&value);
    }
    // JPEG bytes are never in another bit order.
    if lowest_bit_first && facts.compression != RAW && facts.compression != JPEG {
        reverse_bits(file.to_mut(), offsets.iter().copied().zip(list(&facts.lengths)));
    }
    Ok(Directory {
        photometric,
        file,
        raw: (facts.compression == RAW).then_some(offsets),
        lowest_bit_first,
        longest: facts.longest,
    })
}

/// Copies the file and appends a complete directory that states the meaning of the samples and the lengths of strips or
/// tiles.
///
/// Missing lengths reach to the end of the file, as in libtiff: decoders stop when they have all rows.
fn with_whole_directory(bytes: &[u8], reader: &Reader<'_>, facts: &Facts, offsets: &[usize]) -> Vec<u8> {
    const SHORT: usize = 3;
    const LONG: usize = 4;
    let big = reader.is_big_tiff();
    let (count_bytes, offset_bytes) = if big { (8, 8) } else { (2, 4) };
    let put = |file: &mut Vec<u8>, value: usize, length: usize| {
        let value = (value as u64).to_be_bytes();
        let value = &value[8 - length..];
        if reader.is_big_endian() {
            file.extend(value);
        } else {
            file.extend(value.iter().rev());
        }
    };
    let mut entries: Vec<(u16, Vec<u8>)> = Vec::new();
    for entry in reader.entries().filter(|entry| READ.contains(&entry.tag)) {
        if entries.iter().all(|(tag, _)| *tag != entry.tag) {
            entries.push((entry.tag, reader.entry(&entry).to_vec()));
        }
    }
    // Room for the lengths, and for entries of at most 20 bytes.
    let appended = LONG * offsets.len() + 20 * (entries.len() + 3);
    let mut file = Vec::with_capacity(bytes.len() + appended);
    file.extend_from_slice(bytes);
    file.resize(file.len().next_multiple_of(2), 0);
    if facts.lengths.is_none() {
        let tag = match &facts.offsets {
            Some(Entry {
                tag: TILE_OFFSETS, ..
            }) => TILE_LENGTHS,
            _ => STRIP_LENGTHS,
        };
        let mut values = Vec::new();
        offsets
            .iter()
            .for_each(|&offset| put(&mut values, bytes.len().saturating_sub(offset), LONG));
        let mut entry = Vec::new();
        put(&mut entry, tag.into(), 2);
        put(&mut entry, LONG, 2);
        put(&mut entry, offsets.len(), offset_bytes);
        if values.len() > offset_bytes {
            put(&mut entry, file.len(), offset_bytes);
            file.append(&mut values);
        } else {
            values.resize(offset_bytes, 0);
            entry.append(&mut values);
        }
        entries.push((tag, entry));
    }
    if facts.photometric.is_none() {
        let mut entry = Vec::new();
        put(&mut entry, PHOTOMETRIC.into(), 2);
        put(&mut entry, SHORT, 2);
        put(&mut entry, 1, offset_bytes);
        put(&mut entry, BLACK_IS_ZERO.into(), 2);
        entry.resize(entry.len() + offset_bytes - 2, 0);
        entries.push((PHOTOMETRIC, entry));
    }
    entries.sort_unstable_by_key(|(tag, _)| *tag);
    let mut header = Vec::new();
    put(&mut header, file.len(), offset_bytes);
    let at = if big { 8 } else { 4 };
    if let Some(place) = file.get_mut(at..at + offset_bytes) {
        place.copy_from_slice(&header);
    }
    put(&mut file, entries.len(), count_bytes);
    entries.iter().for_each(|(_, entry)| file.extend(entry));
    put(&mut file, 0, offset_bytes);
    file
}

/// Reverses the bits of the bytes in the given ranges (offset and length), each byte once.
fn reverse_bits(file: &mut [u8], ranges: impl Iterator<Item = (usize, usize)>) {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_unstable();
    let mut done = 0;
    for (offset, length) in ranges {
        let end = offset.saturating_add(length).min(file.len());
        let bytes = file.get_mut(offset.max(done)..end).unwrap_or_default();
        bytes.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        done = done.max(end);
    }
}

impl Facts {
    fn read(reader: &Reader<'_>) -> Result<Self, Failure> {
        const CUT: Failure = Failure::truncated("the TIFF is truncated: its directory is missing");
        let mut facts = Self {
            compression: 1,
            fill_order: 1,
            ..Self::default()
        };
        // Entries that are cut off are ignored here. The decoder reports which one is missing.
        if !reader.has_directory() {
            return Err(CUT);
        }
        for entry in reader.entries().filter(|entry| READ.contains(&entry.tag)) {
            facts.longest = facts.longest.max(entry.count as u64);
            let number = || reader.whole_number(&entry).unwrap_or(0);
            match entry.tag {
                COMPRESSION => facts.compression = number(),
                FILL_ORDER => facts.fill_order = number(),
                PHOTOMETRIC => facts.photometric = facts.photometric.or(Some(entry.value)),
                STRIP_OFFSETS => facts.offsets = Some(entry),
                STRIP_LENGTHS => facts.lengths = Some(entry),
                TILE_OFFSETS if facts.offsets.is_none() => facts.offsets = Some(entry),
                TILE_LENGTHS if facts.lengths.is_none() => facts.lengths = Some(entry),
                _ => {}
            }
        }
        Ok(facts)
    }
}
