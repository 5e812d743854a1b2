//! Decodes Huffman codes.

use super::bits::{Bits, extend};
use crate::decode::failure::Failure;

/// Maximum length of codes that one lookup decodes, together with the number that follows if both fit.
const LOOKUP_BITS: u32 = 10;

/// Decoder tables of a Huffman code.
pub(super) struct Huffman {
    /// Lookup table by the next bits, see [`Entry`].
    lookup: Box<[Entry; 1 << LOOKUP_BITS]>,
    /// For each length, the first longer code, padded to 16 bits with zeros. Unlimited beyond 16.
    ends: [u32; 18],
    /// For each length, the difference between the index of a symbol and its code.
    offsets: [i32; 17],
    symbols: [u8; 256],
}

/// Result of a lookup, packed into one number because the decoding loop waits for it.
///
/// | bits | content |
/// | --- | --- |
/// | 0–7 | length of the code, including its number if [`WHOLE`] is set |
/// | 8–15 | symbol |
/// | 16–31 | number |
///
/// 0 means that the code is longer than the lookup.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry(u32);

const WHOLE: u32 = 0x80;

impl Entry {
    fn new(length: u32, symbol: u8) -> Self {
        Self(length | u32::from(symbol) << 8)
    }

    fn whole(length: u32, symbol: u8, value: i16) -> Self {
        Self(length | WHOLE | u32::from(symbol) << 8 | u32::from(value as u16) << 16)
    }

    /// Returns the number that follows the code, if this entry includes it.
    #[inline(always)]
    pub(super) fn value(self) -> Option<i16> {
        (self.0 & WHOLE != 0).then_some((self.0 >> 16) as i16)
    }

    /// Returns the symbol: a run of zeros (high half) and the size of the number that follows the code.
    #[inline(always)]
    pub(super) fn symbol(self) -> u8 {
        (self.0 >> 8) as u8
    }

    #[inline(always)]
    fn length(self) -> u32 {
        self.0 & 63
    }
}

impl Huffman {
    /// Creates the tables from the number of codes of each length (1 to 16) and their symbols.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Self, Failure> {
        let mut huffman = Self {
            lookup: Box::new([Entry::default(); 1 << LOOKUP_BITS]),
            ends: [u32::MAX; 18],
            offsets: [0; 17],
            symbols: [0; 256],
        };
        let named = huffman.symbols.get_mut(..symbols.len());
        named
            .ok_or("damaged JPEG: a Huffman table has more than 256 codes")?
            .copy_from_slice(symbols);
        let (mut code, mut index) = (0_u32, 0_usize);
        for (length, &count) in (1..).zip(counts) {
            huffman.offsets[length as usize] = index as i32 - code as i32;
            for &symbol in symbols
                .get(index..index + usize::from(count))
                .ok_or("damaged JPEG: symbols of a Huffman table are missing")?
            {
                if code >> length != 0 {
                    return Err("damaged JPEG: a Huffman table has too many codes".into());
                }
                huffman.enter(code, length, symbol);
                code += 1;
            }
            index += usize::from(count);
            // No code may consist of ones only.
            if count > 0 && code >> length != 0 {
                return Err("damaged JPEG: a Huffman table has too many codes".into());
            }
            huffman.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(huffman)
    }

    fn enter(&mut self, code: u32, length: u32, symbol: u8) {
        if length > LOOKUP_BITS {
            return;
        }
        let free = LOOKUP_BITS - length;
        let size = u32::from(symbol & 15);
        for rest in 0..1 << free {
            let whole = size > 0 && size <= free;
            self.lookup[(code << free | rest) as usize] = if whole {
                Entry::whole(length + size, symbol, extend(rest >> (free - size), size) as i16)
            } else {
                Entry::new(length, symbol)
            };
        }
    }

    /// Looks up the next bits and skips those that the entry covers. Requires a previous refill.
    #[inline(always)]
    pub(super) fn entry(&self, bits: &mut Bits<'_>) -> Entry {
        let entry = self.lookup[bits.peek(LOOKUP_BITS) as usize & ((1 << LOOKUP_BITS) - 1)];
        if entry.0 == 0 {
            return self.skip_long(bits);
        }
        bits.skip(entry.length());
        entry
    }

    /// Returns the next symbol, without its number.
    #[inline(always)]
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> u8 {
        bits.refill();
        let entry = self.lookup[bits.peek(LOOKUP_BITS) as usize & ((1 << LOOKUP_BITS) - 1)];
        if entry.0 == 0 {
            return self.skip_long(bits).symbol();
        }
        let size = match entry.value() {
            Some(_) => u32::from(entry.symbol() & 15),
            None => 0,
        };
        bits.skip(entry.length() - size);
        entry.symbol()
    }

    /// Decodes and skips a code that is longer than the lookup.
    #[inline(always)]
    fn skip_long(&self, bits: &mut Bits<'_>) -> Entry {
        // The bit reader stays in registers, because the called function takes no reference to it.
        let entry = self.long(bits.peek(16));
        bits.skip(entry.length());
        if entry.length() > 16 {
            bits.mark_damaged();
        }
        entry
    }

    /// Decodes a code that is longer than the lookup from the next 16 bits.
    ///
    /// If no code matches, the data is damaged. As in libjpeg, 17 bits are then the symbol 0.
    #[inline(never)]
    fn long(&self, next: u32) -> Entry {
        let length = (LOOKUP_BITS + 1..=16).find(|&length| next < self.ends[length as usize]);
        let Some(length) = length else {
            return Entry::new(17, 0);
        };
        let index = (next >> (16 - length)) as i32 + self.offsets[length as usize];
        Entry::new(length, self.symbols[index as usize & 255])
    }

    /// Reads the difference from the previous DC coefficient.
    #[inline(always)]
    pub(super) fn difference(&self, bits: &mut Bits<'_>) -> i32 {
        bits.refill();
        let entry = self.entry(bits);
        if let Some(value) = entry.value() {
            return value.into();
        }
        let size = u32::from(entry.symbol() & 15);
        extend(bits.take(size), size)
    }

    /// Returns true if all symbols are valid sizes of DC differences.
    pub(super) fn is_dc_code(&self) -> bool {
        self.symbols.iter().all(|&symbol| symbol <= 15)
    }
}

/// Returns a code of the standard's Annex K, for DC or AC and luma or chroma. Frames of Motion JPEG omit these tables.
pub(super) fn standard(ac: bool, chroma: bool) -> Result<Huffman, Failure> {
    let dc: [u8; 12] = std::array::from_fn(|size| size as u8);
    match (ac, chroma) {
        (false, false) => Huffman::new(&[0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], &dc),
        (false, true) => Huffman::new(&[0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], &dc),
        (true, false) => Huffman::new(
            &[0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125],
            &with_the_rest(&[
                0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
                0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52,
                0xD1, 0xF0, 0x24, 0x33, 0x62, 0x72, 0x82,
            ]),
        ),
        (true, true) => Huffman::new(
            &[0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119],
            &with_the_rest(&[
                0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61,
                0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33,
                0x52, 0xF0, 0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1,
            ]),
        ),
    }
}

/// Returns the given symbols in order, followed by all other symbols, sorted.
fn with_the_rest(first: &[u8]) -> Vec<u8> {
    let sizes = (0..16_u8).flat_map(|run| (1..=10).map(move |size| run << 4 | size));
    let rest = sizes.filter(|symbol| !first.contains(symbol));
    first.iter().copied().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_and_too_few_codes_are_refused() {
        let mut counts = [0; 16];
        counts[0] = 2;
        assert!(Huffman::new(&counts, &[1, 2]).is_err());
        counts[0] = 1;
        assert!(Huffman::new(&counts, &[1]).is_ok());
        assert!(Huffman::new(&counts, &[]).is_err());
        counts[1] = 3;
        assert!(Huffman::new(&counts, &[1, 2, 3, 4]).is_err());
    }

    #[test]
    fn the_standard_codes_have_all_their_symbols() {
        for (ac, chroma) in [(false, false), (false, true), (true, false), (true, true)] {
            let huffman = standard(ac, chroma).unwrap();
            let wanted = if ac { 162 } else { 12 };
            let mut symbols = huffman.symbols[..wanted].to_vec();
            symbols.sort_unstable();
            symbols.dedup();
            assert_eq!(symbols.len(), wanted);
        }
    }

    /// Codes of 1 to 16 bits, each followed by its number.
    #[test]
    fn short_and_long_codes_are_told_apart() {
        let symbols: [u8; 16] = std::array::from_fn(|i| i as u8 % 11);
        let huffman = Huffman::new(&[1; 16], &symbols).unwrap();
        for (length, &symbol) in (1..).zip(&symbols) {
            // The code is ones and a final zero. The number's bits are ones, which is the largest number.
            let code = (1_u64 << length) - 2;
            let size = u32::from(symbol);
            let bits = (code << size | ((1 << size) - 1)) << (64 - length - size);
            let stuffed = bits.to_be_bytes().into_iter().flat_map(|byte| match byte {
                0xFF => vec![0xFF, 0],
                _ => vec![byte],
            });
            let bytes: Vec<u8> = stuffed.chain([0; 8]).collect();
            let mut bits = Bits::new(&bytes, 0);
            assert_eq!(huffman.difference(&mut bits), (1 << size) - 1, "length {length}");
            let mut bits = Bits::new(&bytes, 0);
            assert_eq!(huffman.symbol(&mut bits), symbol);
            assert_eq!(bits.take(size), (1 << size) - 1);
        }
        let mut bits = Bits::new(&[0x7F; 8], 0);
        bits.refill();
        huffman.entry(&mut bits);
        assert!(!bits.is_damaged());
        let ones = [0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0];
        let mut bits = Bits::new(&ones, 0);
        assert_eq!(huffman.symbol(&mut bits), 0);
        assert!(bits.is_damaged());
        assert_eq!(bits.take(16), 0b1111_1111_1111_1110);
    }
}
