//! Reads the bits of entropy-coded data, up to the next marker.

/// Bit reader that returns the highest bit first.
///
/// After the data it returns zeros, which [`Bits::is_overrun`] detects. Loops that read many bits should use a local copy,
/// which stays in registers.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Next bits, from the highest on.
    buffer: u64,
    /// Number of valid bits in the buffer.
    count: u32,
    /// Number of zero bits appended after the data.
    padding: u64,
    damaged: bool,
}

impl<'a> Bits<'a> {
    /// Creates a reader of the entropy-coded data that begins at `at`.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self {
            bytes,
            at,
            buffer: 0,
            count: 0,
            padding: 0,
            damaged: false,
        }
    }

    /// Returns the position at which to look for the next marker.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Returns true if more bits were taken than the data has.
    pub(super) fn is_overrun(&self) -> bool {
        u64::from(self.count) < self.padding
    }

    /// Returns the number of whole data bytes in the buffer.
    pub(super) fn whole_bytes(&self) -> usize {
        (u64::from(self.count).saturating_sub(self.padding) / 8) as usize
    }

    /// Records that no encoder can have written the bits.
    pub(super) fn mark_damaged(&mut self) {
        self.damaged = true;
    }

    /// Returns true if [`Bits::mark_damaged`] was called.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Fills the buffer to at least 32 bits, which suffices for a code and the bits that follow it.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        if self.count < 32 {
            let next = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>);
            match next.map(|next| u64::from_be_bytes(*next)) {
                Some(next) if !has_ff(next) => {
                    // The bits below `count` are overwritten by the byte that is read next.
                    self.buffer |= next >> self.count;
                    let taken = (63 - self.count) / 8;
                    self.at += taken as usize;
                    self.count += 8 * taken;
                }
                _ => *self = self.refilled_slowly(),
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn refilled_slowly(mut self) -> Self {
        while self.count <= 48 {
            let byte = match self.bytes.get(self.at) {
                Some(0xFF) => {
                    let fill = self.bytes[self.at..]
                        .iter()
                        .take_while(|&&byte| byte == 0xFF)
                        .count();
                    match self.bytes.get(self.at + fill) {
                        Some(0) => {
                            self.at += fill + 1;
                            Some(0xFF)
                        }
                        _ => None,
                    }
                }
                Some(&byte) => {
                    self.at += 1;
                    Some(byte)
                }
                None => None,
            };
            if byte.is_none() {
                self.padding += 8;
            }
            self.buffer |= u64::from(byte.unwrap_or(0)) << (56 - self.count);
            self.count += 8;
        }
        self
    }

    /// Returns the next `count` bits (1 to 32) without taking them. Requires a previous refill.
    #[inline(always)]
    pub(super) fn peek(&self, count: u32) -> u32 {
        (self.buffer >> (64 - count)) as u32
    }

    /// Skips bits that were peeked at.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        self.buffer <<= count;
        self.count -= count;
    }

    /// Refills the buffer and takes the next `count` bits (at most 16).
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        self.refill();
        let value = self.peek(count);
        self.skip(count);
        value
    }
}

/// Returns true if one of the eight bytes is 0xFF.
#[inline(always)]
fn has_ff(bytes: u64) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let zeros = !bytes;
    zeros.wrapping_sub(LOW) & bytes & (LOW << 7) != 0
}

/// Converts `size` bits (at most 16) to the signed number that they encode. Half of the values are negative.
#[inline(always)]
pub(super) fn extend(bits: u32, size: u32) -> i32 {
    if bits < (1 << size) >> 1 {
        bits as i32 - (1 << size) + 1
    } else {
        bits as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuffed_bytes_are_data_and_markers_end_it() {
        let bytes = [0x12, 0xFF, 0x00, 0x34, 0xFF, 0xFF, 0x00, 0x56, 0xFF, 0xD9, 0x78];
        let mut bits = Bits::new(&bytes, 0);
        for expected in [0x12, 0xFF, 0x34, 0xFF, 0x56] {
            assert_eq!(bits.take(8), expected);
        }
        assert!(!bits.is_overrun());
        assert_eq!(bits.position(), 8);
        assert_eq!(bits.take(1), 0);
        assert!(bits.is_overrun());
    }

    #[test]
    fn bits_are_the_same_at_any_offset() {
        let bytes: Vec<u8> = (0..200_u32).map(|i| (i * 37 % 251) as u8).collect();
        let mut bits = Bits::new(&bytes, 0);
        let mut at = 0;
        for step in (1..=16).cycle().take_while({
            let mut sum = 0;
            move |step| {
                sum += step;
                sum <= 1600
            }
        }) {
            let expected = (at..at + step).fold(0, |value, bit: u32| {
                value << 1 | u32::from(bytes[bit as usize / 8] >> (7 - bit % 8) & 1)
            });
            assert_eq!(bits.take(step), expected);
            at += step;
        }
        assert!(!bits.is_overrun());
    }

    #[test]
    fn numbers_of_a_size_are_symmetric() {
        assert_eq!(extend(0, 0), 0);
        assert_eq!([0, 1].map(|bits| extend(bits, 1)), [-1, 1]);
        assert_eq!([0, 3, 4, 7].map(|bits| extend(bits, 3)), [-7, -4, 4, 7]);
    }
}
