//! Limits on WebP files.

use std::ffi::OsStr;
use std::fs;

use hipvit::ImageErrorKind;
use hipvit::image::{Limits, decode};

use super::{reason, robustness};
use crate::support::at;

/// Pillow refuses a WebP that is shorter than its header declares, even by the byte that pads a chunk.
#[test]
fn a_webp_short_of_a_byte_is_truncated() {
    let mut bytes = robustness("cut.webp");
    let (kind, _) = reason(decode("cut.webp", &bytes, Limits::default()));
    assert_eq!(kind, ImageErrorKind::Truncated);
    bytes.push(0);
    decode("whole.webp", &bytes, Limits::default()).unwrap();
    bytes.extend(b"trailing");
    decode("longer.webp", &bytes, Limits::default()).unwrap();
}

/// The first frame's chunk extends beyond the file, and its header declares the maximum size. The decoder
/// would allocate that before it finds the error.
#[test]
fn a_webp_whose_frame_is_cut_short_is_refused_before_it_is_allocated() {
    let samples = at("tests/data/image/samples");
    let mut bytes = fs::read(samples.join("animated-alpha-lossy.webp")).unwrap();
    let frame = bytes.windows(4).position(|kind| kind == b"VP8 ").unwrap();
    bytes[frame + 7] = 0x7F;
    bytes[frame + 14..frame + 18].copy_from_slice(&[0xFF, 0x7F, 0xFF, 0x7F]);
    let limits = Limits {
        max_memory: 16 << 10,
        ..Limits::default()
    };
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(decode("cut", &bytes, limits)));
    let (kind, text) = reason(result.unwrap());
    assert_eq!(kind, ImageErrorKind::Truncated, "{text}");
    assert!(info.bytes_max < 64 << 10, "{}", info.bytes_max);
}

/// The number and sizes of a frame's partitions are read from it. Whichever bits change, the decoder does not
/// allocate bytes that are missing.
#[test]
fn a_webp_whose_partitions_are_cut_short_is_refused_before_they_are_allocated() {
    let bytes = fs::read(at("tests/data/image/samples/rgb-lossy.webp")).unwrap();
    let limits = Limits {
        max_memory: 64 << 10,
        ..Limits::default()
    };
    decode("whole", &bytes, limits).unwrap();
    let mut most = 0;
    for place in 20..60 {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1 << bit;
            let info = allocation_counter::measure(|| drop(decode("changed", &bytes, limits)));
            most = most.max(info.bytes_max);
        }
    }
    assert!(most < 1 << 20, "{most}");
}

#[test]
fn a_large_webp_frame_is_refused_before_it_is_copied() {
    // A lossless frame of one pixel, with a mebibyte of data.
    let mut content = vec![0; 1 << 20];
    content[0] = 0x2F;
    let mut file = b"RIFF".to_vec();
    file.extend((12 + content.len() as u32).to_le_bytes());
    file.extend(b"WEBPVP8L");
    file.extend((content.len() as u32).to_le_bytes());
    file.extend(&content);
    let limits = Limits {
        max_memory: 3 << 19,
        ..Limits::default()
    };
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(decode("large", &file, limits)));
    let (kind, text) = reason(result.unwrap());
    assert_eq!(kind, ImageErrorKind::TooLarge, "{text}");
    assert!(info.bytes_max < 64 << 10, "{}", info.bytes_max);
}

/// Writes the bits of a lossless WebP, least significant first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        for bit in 0..count {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (self.count % 8);
            self.count += 1;
        }
    }

    /// Writes a prefix code of one symbol.
    fn single(&mut self, symbol: u32) {
        self.put(0b101, 3);
        self.put(symbol, 8);
    }

    /// Writes a prefix code of two symbols.
    fn pair(&mut self) {
        self.put(0b0011, 4);
        self.put(1, 8);
    }

    /// Writes the lengths of the code that encodes a prefix code's lengths.
    fn lengths(&mut self, of: impl Fn(u32) -> u32) {
        self.put(0, 1);
        self.put(15, 4);
        for length in [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] {
            self.put(of(length), 3);
        }
    }

    /// Writes a prefix code of 11 symbols, the longest of 10 bits.
    fn deep(&mut self) {
        self.lengths(|length| match length {
            1..=6 => 3,
            7..=10 => 4,
            _ => 0,
        });
        self.put(1 | 1 << 1, 4);
        self.put(11 - 2, 4);
        for length in (1..=10_u32).chain([10]) {
            if length <= 6 {
                self.put((length - 1).reverse_bits() >> 29, 3);
            } else {
                self.put((length + 5).reverse_bits() >> 28, 4);
            }
        }
    }

    /// Writes a prefix code of 2,048 symbols, all of 11 bits. The lengths themselves take no bits.
    fn wide(&mut self) {
        self.lengths(|length| u32::from(length == 11));
        self.put(1 | 5 << 1, 4);
        self.put(2048 - 2, 12);
    }
}

/// Creates a lossless WebP of one pixel. Its entropy image declares `groups` groups of prefix codes.
fn webp_of_groups(groups: u32, group: impl Fn(&mut Bits)) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(0x2F, 8);
    bits.put(0, 14 + 14 + 1 + 3);
    // No transform, a colour cache of 2^11, and an entropy image without one.
    bits.put(1 << 1 | 11 << 2, 6);
    bits.put(1, 1 + 3 + 1);
    let last = groups - 1;
    for symbol in [last & 0xFF, last >> 8, 0, 0, 0] {
        bits.single(symbol);
    }
    (0..groups).for_each(|_| group(&mut bits));
    // The pixel.
    bits.put(0, 32);
    bits.put(0, 32);
    let mut content = bits.bytes;
    content.resize(content.len().next_multiple_of(2), 0);
    let length = content.len() as u32;
    let mut file = b"RIFF".to_vec();
    file.extend((12 + length).to_le_bytes());
    file.extend(b"WEBPVP8L");
    file.extend(length.to_le_bytes());
    file.extend(content);
    file
}

/// Returns the result under a limit on memory, and the maximum of allocated bytes.
fn decode_within(
    max_memory: u64,
    file: &[u8],
) -> (Result<hipvit::image::RgbImage, hipvit::image::Error>, u64) {
    let limits = Limits {
        max_memory,
        ..Limits::default()
    };
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(decode("a.webp", file, limits)));
    (result.unwrap(), info.bytes_max)
}

/// The decoder builds all groups, although the pixel uses one.
#[test]
fn the_prefix_codes_of_a_webp_count_as_memory() {
    let tables = webp_of_groups(700, |bits| (0..5).for_each(|_| bits.deep()));
    let trees = webp_of_groups(300, |bits| {
        bits.wide();
        (0..4).for_each(|_| bits.single(0));
    });
    let pairs = webp_of_groups(5000, |bits| (0..5).for_each(|_| bits.pair()));
    for (name, file, factor) in [
        ("tables", tables, 300),
        ("trees", trees, 2000),
        ("pairs", pairs, 50),
    ] {
        let (result, needed) = decode_within(Limits::default().max_memory, &file);
        assert_eq!(result.unwrap().data.len(), 3, "{name}");
        assert!(
            needed > factor * file.len() as u64,
            "{name}: {needed} of {}",
            file.len()
        );
        let (result, allocated) = decode_within(needed, &file);
        let (kind, text) = reason(result);
        assert_eq!(kind, ImageErrorKind::TooLarge, "{name}: {text}");
        assert!(allocated < 64 << 10, "{name}: {allocated}");
        // Not much more either.
        decode_within(3 * needed, &file).0.unwrap();
    }
}

#[test]
fn lossless_webps_take_no_more_than_what_they_count_as() {
    let samples = at("tests/data/image/samples");
    let mut lossless = 0;
    for entry in fs::read_dir(samples).unwrap() {
        let path = entry.unwrap().path();
        let file = fs::read(&path).unwrap();
        if path.extension() != Some(OsStr::new("webp")) || !file.windows(4).any(|kind| kind == b"VP8L") {
            continue;
        }
        let (result, needed) = decode_within(Limits::default().max_memory, &file);
        result.unwrap();
        let (kind, text) = reason(decode_within(needed, &file).0);
        assert_eq!(kind, ImageErrorKind::TooLarge, "{}: {text}", path.display());
        lossless += 1;
    }
    assert!(lossless > 8, "{lossless}");
}
