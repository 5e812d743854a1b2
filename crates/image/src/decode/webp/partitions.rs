//! Checks that the parts of a lossy frame are as long as stated. The decoder allocates the stated length before
//! reading, up to 16 MiB.
//!
//! The number of parts is at the end of the frame's header. The header is coded arithmetically after its first bytes
//! (RFC 6386, sections 7, 9.2 to 9.5 and 19.2).

/// Number of bytes of the frame's tag, start code, width and height.
const HEADER: usize = 10;

/// Returns true if all partitions fit into this content of a `VP8 ` chunk.
pub(super) fn are_complete(frame: &[u8]) -> bool {
    fitting(frame).is_some()
}

fn fitting(frame: &[u8]) -> Option<()> {
    let tag = frame.get(..3)?;
    let first = (u24(tag) >> 5) as usize;
    let (first, rest) = frame.get(HEADER..)?.split_at_checked(first)?;
    // The last partition has no stated size; it is the rest.
    let sized = count(first) - 1;
    let (sizes, mut rest) = rest.split_at_checked(3 * sized)?;
    for size in sizes.chunks_exact(3) {
        rest = rest.get(u24(size) as usize..)?;
    }
    Some(())
}

fn u24(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u32::from(byte))
}

/// Returns the number of partitions after the first one, which contains the header.
fn count(first: &[u8]) -> usize {
    let mut header = Header::new(first);
    // Colour space and clamping.
    header.literal(2);
    if header.flag() {
        // Segments: an update of their map, and of their quantisers and filter levels.
        let (map, features) = (header.flag(), header.flag());
        if features {
            header.flag();
            (0..4).for_each(|_| header.optional(7 + 1));
            (0..4).for_each(|_| header.optional(6 + 1));
        }
        if map {
            (0..3).for_each(|_| header.optional(8));
        }
    }
    // Type, level and sharpness of the loop filter, and adjustments for references and modes.
    header.literal(1 + 6 + 3);
    if header.flag() && header.flag() {
        (0..8).for_each(|_| header.optional(6 + 1));
    }
    1 << header.literal(2)
}

/// Arithmetic decoder of bits with equal probabilities.
struct Header<'a> {
    bytes: std::slice::Iter<'a, u8>,
    value: u32,
    range: u32,
    /// Number of bits shifted out since the last byte.
    shifted: u32,
}

impl<'a> Header<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut header = Self {
            bytes: bytes.iter(),
            value: 0,
            range: 255,
            shifted: 0,
        };
        header.value = header.byte() << 8;
        header.value |= header.byte();
        header
    }

    /// Returns the next byte, or 0 after the end.
    fn byte(&mut self) -> u32 {
        self.bytes.next().map_or(0, |&byte| byte.into())
    }

    fn flag(&mut self) -> bool {
        let split = 1 + (((self.range - 1) * 128) >> 8);
        let set = self.value >= split << 8;
        if set {
            self.range -= split;
            self.value -= split << 8;
        } else {
            self.range = split;
        }
        while self.range < 128 {
            self.value <<= 1;
            self.range <<= 1;
            self.shifted += 1;
            if self.shifted == 8 {
                self.shifted = 0;
                self.value |= self.byte();
            }
        }
        set
    }

    fn literal(&mut self, bits: u32) -> u32 {
        (0..bits).fold(0, |value, _| value << 1 | u32::from(self.flag()))
    }

    /// Skips a flag, and `bits` bits if the flag is set.
    fn optional(&mut self, bits: u32) {
        if self.flag() {
            self.literal(bits);
        }
    }
}
