//! Computes the memory that the prefix codes of a lossless frame need: up to 65,536 groups of five codes, whatever the
//! frame's size.
//!
//! The decoder builds all codes before it decodes a pixel. A code can take a thousand times as many bytes as it has in
//! the file. The codes follow the transforms, the colour cache and the entropy image, whose largest pixel gives the
//! number of groups (RFC 9649, section 3).
//!
//! This module therefore parses the frame up to its own pixels. It discards the pixels of the images before them. Only
//! the symbols determine where these images end, and copies are no larger than their source.

use std::slice;

use crate::decode::cancellation::Cancellation;
use crate::decode::failure::Failure;

/// Alphabet sizes of a group's codes: green with lengths, red, blue, alpha and distances. The colour cache enlarges the
/// first one.
const ALPHABETS: [usize; 5] = [GREEN, 256, 256, 256, 40];

/// First symbol of the green code that is an index into the colour cache.
const GREEN: usize = 256 + 24;

/// Maximum number of bits of a colour cache's size, which is 2^11 colours.
const MAX_CACHE_BITS: u32 = 11;

const LONGEST: usize = 15;

const CODE_LENGTH_ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Allocations of the decoder (image-webp 0.2).
mod allocated {
    use super::LONGEST;

    /// Bytes that every frame needs: code lengths, buffers.
    pub(super) const SCRATCH: u64 = 16 << 10;

    /// Maximum length of codes that are entries of a table.
    const TABLE_BITS: usize = 10;

    /// Overhead of an allocator per block, in bytes.
    const BLOCK: u64 = 24;

    /// Bytes of five codes without their blocks.
    const GROUP: u64 = 5 * 56;

    /// Returns the bytes of the list of groups. Doubling the list keeps the old one until it is copied.
    pub(super) fn groups(count: u32) -> u64 {
        3 * u64::from(count).max(2) * GROUP
    }

    /// Returns the bytes of a code: a table of 4-byte entries, and two nodes of 16 bytes for each longer code.
    pub(super) fn code(counts: &[u16; LONGEST + 1]) -> u64 {
        let longest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        let beyond: u64 = counts[TABLE_BITS + 1..].iter().copied().map(u64::from).sum();
        (4 << longest.min(TABLE_BITS)) + 2 * 16 * beyond + 2 * BLOCK
    }

    /// Bytes of a code that is stated as two symbols: a table of two entries, and three nodes.
    pub(super) const PAIR: u64 = 2 * 4 + 3 * 16 + 2 * BLOCK;

    /// Returns the bytes of a colour cache: 4 bytes per colour.
    pub(super) fn color_cache(bits: u32) -> u64 {
        (4 << bits) + BLOCK
    }
}

/// Returns the number of bytes of a lossless frame's prefix codes and colour caches in the decoder, or `None` if they
/// are damaged.
pub(super) fn memory(
    frame: &[u8],
    (width, height): (u32, u32),
    cancellation: Cancellation<'_>,
) -> Result<Option<u64>, Failure> {
    let mut reader = Reader::new(frame, cancellation);
    let read = reader.frame(width, height);
    // The reader's bits also end if decoding is cancelled.
    cancellation.check()?;
    Ok(read.map(|()| reader.memory))
}

/// A prefix code.
enum Code {
    /// Code with a single symbol, which takes no bits.
    Single(u16),
    Canonical {
        /// Number of codes of each length.
        counts: [u16; LONGEST + 1],
        /// Symbols in the order of their codes.
        symbols: Vec<u16>,
    },
}

impl Code {
    /// Builds a code from the lengths of its symbols' codes. Returns `None` if the code is not complete.
    fn new(lengths: &[u8]) -> Option<Self> {
        let mut counts = [0_u16; LONGEST + 1];
        for &length in lengths {
            counts[usize::from(length)] += 1;
        }
        counts[0] = 0;
        let used = || (0..).zip(lengths).filter(|&(_, &length)| length > 0);
        if used().count() == 1 {
            return Some(Self::Single(used().next()?.0));
        }
        let covered: u32 = (0..=LONGEST)
            .map(|length| u32::from(counts[length]) << (LONGEST - length))
            .sum();
        if covered != 1 << LONGEST {
            return None;
        }
        let mut places = [0; LONGEST + 1];
        for length in 1..LONGEST {
            places[length + 1] = places[length] + usize::from(counts[length]);
        }
        let mut symbols = vec![0; used().count()];
        for (symbol, &length) in used() {
            let place = &mut places[usize::from(length)];
            symbols[*place] = symbol;
            *place += 1;
        }
        Some(Self::Canonical { counts, symbols })
    }

    fn single(&self) -> Option<u16> {
        match self {
            Self::Single(symbol) => Some(*symbol),
            Self::Canonical { .. } => None,
        }
    }
}

/// Parses what precedes a frame's own pixels. Its functions return `None` if the frame is damaged.
struct Reader<'a> {
    bytes: slice::Iter<'a, u8>,
    /// Bits taken from `bytes`, the next one lowest.
    bits: u64,
    count: u32,
    cancellation: Cancellation<'a>,
    /// Number of code groups for the frame's own pixels.
    groups: u32,
    /// Number of bytes that the decoder allocates for what was parsed.
    memory: u64,
}

impl<'a> Reader<'a> {
    /// Number of bytes between two checks for cancellation.
    const INTERVAL: usize = 4 << 10;

    fn new(frame: &'a [u8], cancellation: Cancellation<'a>) -> Self {
        Self {
            bytes: frame.iter(),
            bits: 0,
            count: 0,
            cancellation,
            groups: 1,
            memory: allocated::SCRATCH,
        }
    }

    /// Takes up to 32 bits.
    fn take(&mut self, count: u32) -> Option<u32> {
        while self.count < count {
            if self.bytes.len().is_multiple_of(Self::INTERVAL) && self.cancellation.is_cancelled() {
                return None;
            }
            self.bits |= u64::from(*self.bytes.next()?) << self.count;
            self.count += 8;
        }
        let value = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.count -= count;
        Some(value as u32)
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)? == 1)
    }

    /// Parses a frame up to its own pixels.
    fn frame(&mut self, mut width: u32, height: u32) -> Option<()> {
        let signature = self.take(8)?;
        // Skip the size, which is known, and the alpha flag.
        self.take(14 + 14 + 1)?;
        let version = self.take(3)?;
        if (signature, version) != (0x2F, 0) {
            return None;
        }
        let mut transforms = [false; 4];
        while self.flag()? {
            let transform = self.take(2)?;
            if std::mem::replace(&mut transforms[transform as usize], true) {
                return None;
            }
            match transform {
                // The predictor and the colour transform.
                0 | 1 => {
                    self.block_image(width, height)?;
                }
                // Subtract green: no data.
                2 => {}
                // The palette. A pixel may pack several indices.
                _ => {
                    let colors = self.take(8)? + 1;
                    self.image(colors)?;
                    let bits = match colors {
                        0..=2 => 3,
                        3..=4 => 2,
                        5..=16 => 1,
                        _ => 0,
                    };
                    width = width.div_ceil(1 << bits);
                }
            }
        }
        let cache = self.color_cache()?;
        if self.flag()? {
            self.groups = 1 + self.block_image(width, height)?;
        }
        self.memory += allocated::groups(self.groups);
        for _ in 0..self.groups {
            self.group(cache)?;
        }
        Some(())
    }

    /// Parses an image with a pixel for each block. Returns the largest number in red and green.
    fn block_image(&mut self, width: u32, height: u32) -> Option<u32> {
        let side = 1 << (self.take(3)? + 2);
        self.image(width.div_ceil(side) * height.div_ceil(side))
    }

    /// Parses an image with one group of codes. Returns the largest number in red and green.
    fn image(&mut self, pixels: u32) -> Option<u32> {
        let cache = self.color_cache()?;
        self.memory += allocated::groups(1);
        let [green, red, blue, alpha, distance] = self.group(cache)?;
        let number = |red: u16, green: u16| u32::from(red as u8) << 8 | u32::from(green);
        // All pixels are equal and take no bits.
        match (green.single(), red.single(), blue.single(), alpha.single()) {
            (Some(green), Some(red), Some(_), Some(_)) if green < 256 => return Some(number(red, green)),
            (Some(cached), ..) if usize::from(cached) >= GREEN => return Some(0),
            _ => {}
        }
        let (mut largest, mut done) = (0, 0);
        while done < pixels {
            let symbol = self.symbol(&green)?;
            done += match symbol {
                0..256 => {
                    largest = largest.max(number(self.symbol(&red)?, symbol));
                    self.symbol(&blue)?;
                    self.symbol(&alpha)?;
                    1
                }
                // A copy. The decoder checks its distance.
                256..280 => {
                    let length = self.prefixed(symbol - 256)?;
                    let distance = self.symbol(&distance)?;
                    self.prefixed(distance)?;
                    if done == 0 || length > pixels - done {
                        return None;
                    }
                    length
                }
                _ => 1,
            };
        }
        Some(largest)
    }

    /// Reads the number of a length or distance. The symbol says how many bits follow.
    fn prefixed(&mut self, symbol: u16) -> Option<u32> {
        let symbol = u32::from(symbol);
        if symbol < 4 {
            return Some(symbol + 1);
        }
        let bits = (symbol - 2) >> 1;
        Some(((2 + (symbol & 1)) << bits) + self.take(bits)? + 1)
    }

    /// Reads the size of a colour cache.
    fn color_cache(&mut self) -> Option<usize> {
        if !self.flag()? {
            return Some(0);
        }
        let bits = self.take(4)?;
        if !(1..=MAX_CACHE_BITS).contains(&bits) {
            return None;
        }
        self.memory += allocated::color_cache(bits);
        Some(1 << bits)
    }

    fn group(&mut self, cache: usize) -> Option<[Code; 5]> {
        let mut codes = [const { Code::Single(0) }; 5];
        for (code, alphabet) in codes.iter_mut().zip(ALPHABETS) {
            let cached = if alphabet == GREEN { cache } else { 0 };
            *code = self.code(alphabet + cached)?;
        }
        Some(codes)
    }

    fn code(&mut self, alphabet: usize) -> Option<Code> {
        if self.flag()? {
            return self.simple_code(alphabet);
        }
        let mut lengths = [0; CODE_LENGTH_ORDER.len()];
        let stated = 4 + self.take(4)? as usize;
        for &symbol in &CODE_LENGTH_ORDER[..stated] {
            lengths[symbol] = self.take(3)? as u8;
        }
        let code = Code::new(&lengths)?;
        let mut symbols = alphabet;
        if self.flag()? {
            let bits = 2 + 2 * self.take(3)?;
            symbols = 2 + self.take(bits)? as usize;
            if symbols > alphabet {
                return None;
            }
        }
        let mut lengths = [0; GREEN + (1 << MAX_CACHE_BITS)];
        let lengths = &mut lengths[..alphabet];
        let (mut at, mut last) = (0, 8);
        for _ in 0..symbols {
            if at == alphabet {
                break;
            }
            let (length, times) = match self.symbol(&code)? {
                16 => (last, 3 + self.take(2)?),
                17 => (0, 3 + self.take(3)?),
                18 => (0, 11 + self.take(7)?),
                length => (length as u8, 1),
            };
            let end = at + times as usize;
            lengths.get_mut(at..end)?.fill(length);
            at = end;
            if length > 0 {
                last = length;
            }
        }
        let code = Code::new(lengths)?;
        if let Code::Canonical { counts, .. } = &code {
            self.memory += allocated::code(counts);
        }
        Some(code)
    }

    /// Reads a code of one or two symbols.
    fn simple_code(&mut self, alphabet: usize) -> Option<Code> {
        let two = self.flag()?;
        let bits = if self.flag()? { 8 } else { 1 };
        let mut symbol = |bits| {
            let symbol = self.take(bits)? as u16;
            (usize::from(symbol) < alphabet).then_some(symbol)
        };
        let first = symbol(bits)?;
        if !two {
            return Some(Code::Single(first));
        }
        let symbols = vec![first, symbol(8)?];
        self.memory += allocated::PAIR;
        let mut counts = [0; LONGEST + 1];
        counts[1] = 2;
        Some(Code::Canonical { counts, symbols })
    }

    fn symbol(&mut self, code: &Code) -> Option<u16> {
        let (counts, symbols) = match code {
            Code::Single(symbol) => return Some(*symbol),
            Code::Canonical { counts, symbols } => (counts, symbols),
        };
        // The bits so far, less the shorter codes, and the number of shorter codes.
        let (mut beyond, mut shorter) = (0, 0);
        for &count in &counts[1..] {
            beyond = beyond << 1 | self.take(1)? as usize;
            let count = usize::from(count);
            if beyond < count {
                return symbols.get(shorter + beyond).copied();
            }
            beyond -= count;
            shorter += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Cursor;
    use std::panic::catch_unwind;
    use std::path::PathBuf;

    use image_webp::WebPDecoder;

    use super::super::{Chunks, Picture};
    use super::*;

    fn sample(name: &str) -> Vec<u8> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        fs::read(root.join("../../tests/data/image/samples").join(name)).unwrap()
    }

    /// Returns a file that contains only the first frame.
    fn simple(name: &str) -> Vec<u8> {
        Picture::find(&sample(name)).unwrap().frame.file()
    }

    /// Parses a simple file up to its pixels.
    fn read(file: &[u8]) -> (Option<()>, Reader<'_>) {
        let (_, content) = Chunks(&file[12..]).next().unwrap();
        let size = Picture::find(file).unwrap().frame.size;
        let mut reader = Reader::new(content, Cancellation::never());
        (reader.frame(size.0, size.1), reader)
    }

    /// Expected values are from another reader, which decodes the pixels of all images.
    #[test]
    fn groups_are_counted_up_to_the_pixels() {
        for (name, groups, position) in [
            ("rgb-lossless.webp", 1, 1773),
            ("holes-lossless.webp", 1, 2199),
            ("animated-lossless.webp", 1, 938),
            ("groups-lossless.webp", 3, 1221),
            ("groups-transforms-lossless.webp", 4, 3080),
            ("groups-palette-lossless.webp", 2, 4222),
        ] {
            let file = simple(name);
            let length = Chunks(&file[12..]).next().unwrap().1.len();
            let (result, reader) = read(&file);
            assert!(result.is_some(), "{name}");
            let bits = 8 * (length - reader.bytes.len()) - reader.count as usize;
            assert_eq!((reader.groups, bits), (groups, position), "{name}");
        }
    }

    /// Every frame that the decoder decodes can be parsed.
    #[test]
    fn what_the_decoder_reads_is_read() {
        let (mut decoded, mut refused) = (0, 0);
        for name in [
            "groups-lossless.webp",
            "groups-palette-lossless.webp",
            "grey-lossless.webp",
            "rgba-lossless.webp",
        ] {
            let file = simple(name);
            // Damage begins after the sizes of the chunk and the picture.
            for bit in (25 * 8..400 * 8).step_by(11) {
                let mut file = file.clone();
                file[bit / 8] ^= 1 << (bit % 8);
                let shown = catch_unwind(|| {
                    let mut decoder = WebPDecoder::new(Cursor::new(&file)).ok()?;
                    let mut pixels = vec![0; decoder.output_buffer_size()?];
                    decoder.read_image(&mut pixels).ok()
                });
                let read = read(&file).0.is_some();
                if matches!(shown, Ok(Some(()))) {
                    assert!(read, "{name}, bit {bit}");
                    decoded += 1;
                } else if !read {
                    refused += 1;
                }
            }
        }
        assert!(decoded > 50 && refused > 50, "{decoded}, {refused}");
    }

    #[test]
    fn reading_ahead_ends_once_it_is_cancelled() {
        let file = simple("groups-lossless.webp");
        let (_, content) = Chunks(&file[12..]).next().unwrap();
        // Pad to the interval, so that the reader checks for cancellation at the first byte.
        let mut content = content.to_vec();
        content.resize(Reader::INTERVAL, 0);
        let read = |cancellation| Reader::new(&content, cancellation).frame(32, 32);
        assert!(read(Cancellation::never()).is_some());
        assert!(read(Cancellation::new(&|| true)).is_none());
        assert!(memory(&content, (32, 32), Cancellation::new(&|| true)).is_err());
    }

    #[test]
    fn codes_must_be_complete() {
        let is_code = |lengths: &[u8]| Code::new(lengths).is_some();
        assert!(is_code(&[1, 2, 2]) && is_code(&[0, 3]));
        assert!(!is_code(&[0; 4]) && !is_code(&[1, 2]) && !is_code(&[1, 1, 1]));
    }
}
