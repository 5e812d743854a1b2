//! Whether the parts of a lossy frame are as long as it says: the decoder allocates as much before it reads them, up to 16 MiB.
//!
//! Their number is at the end of the frame's header, which is coded arithmetically, as all after the first bytes (RFC 6386,
//! sections 7, 9.2 to 9.5 and 19.2).

/// The frame's tag, start code, width and height.
const HEADER: usize = 10;

/// Whether all partitions are within this content of a `VP8 ` chunk.
pub(super) fn fit(frame: &[u8]) -> bool {
    fitting(frame).is_some()
}

fn fitting(frame: &[u8]) -> Option<()> {
    let tag = frame.get(..3)?;
    let first = (u24(tag) >> 5) as usize;
    let (first, rest) = frame.get(HEADER..)?.split_at_checked(first)?;
    // The last one has what is left.
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

/// The number of partitions beside the first one, which has the header.
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
    // The loop filter's type, level and sharpness, and adjustments for references and modes.
    header.literal(1 + 6 + 3);
    if header.flag() && header.flag() {
        (0..8).for_each(|_| header.optional(6 + 1));
    }
    1 << header.literal(2)
}

/// Decodes bits of which either value is as likely.
struct Header<'a> {
    bytes: std::slice::Iter<'a, u8>,
    value: u32,
    range: u32,
    /// Bits that were shifted out since the last byte.
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

    /// 0 behind the end.
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

    /// Passes a flag, and as many bits if it is set.
    fn optional(&mut self, bits: u32) {
        if self.flag() {
            self.literal(bits);
        }
    }
}
