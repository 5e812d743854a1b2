//! The frame header of a JPEG inside a TIFF, read ahead of the TIFF decoder's own JPEG decoder: how large the image is, which may
//! be another size than the TIFF's, and how much memory decoding it takes.

use super::Failure;

/// What the header of the first frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) width: u16,
    pub(super) height: u16,
    /// Horizontal and vertical sampling factors of each component.
    components: Vec<[u8; 2]>,
}

impl FrameHeader {
    /// The first frame's header; `None` if there is none, or an invalid one.
    pub(super) fn find(jpeg: &[u8]) -> Option<Self> {
        let mut rest = jpeg;
        loop {
            // As decoders do, whatever lies between segments is skipped.
            let at = rest
                .windows(2)
                .position(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF))?;
            let marker = rest[at + 1];
            rest = &rest[at + 2..];
            match marker {
                // Without a content: SOI, RST0 to RST7, TEM.
                0xD8 | 0xD0..=0xD7 | 0x01 => continue,
                // Scans and the end come after the frame's header.
                0xDA | 0xD9 => return None,
                _ => {}
            }
            let length = usize::from(u16_at(rest, 0)?);
            let content = rest.get(2..length)?;
            match marker {
                // Huffman tables, JPG, arithmetic conditioning.
                0xC4 | 0xC8 | 0xCC => {}
                0xC0..=0xCF => return Self::parse(content),
                _ => {}
            }
            rest = &rest[length..];
        }
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let count = usize::from(*content.get(5)?);
        let components = content.get(6..6 + 3 * count)?.chunks_exact(3);
        Some(Self {
            height: u16_at(content, 1)?,
            width: u16_at(content, 3)?,
            components: components.map(|c| [c[1] >> 4, c[1] & 15]).collect(),
        })
    }

    /// Bytes that a decoder takes at most: the coefficients of all blocks, their samples, and the pixels.
    pub(super) fn memory(&self) -> Result<u64, Failure> {
        let factor = |axis: usize| self.components.iter().map(|c| u64::from(c[axis])).max();
        let (Some(across @ 1..), Some(down @ 1..)) = (factor(0), factor(1)) else {
            return Err("the JPEG's frame header has no components or no sampling factors".into());
        };
        let (width, height) = (u64::from(self.width), u64::from(self.height));
        // Whole units of 8×8 blocks, and one more, which upsampling may read.
        let units = (width.div_ceil(8 * across) + 1) * (height.div_ceil(8 * down) + 1);
        let blocks: u64 = self
            .components
            .iter()
            .map(|c| u64::from(c[0]) * u64::from(c[1]))
            .sum();
        let samples = units * blocks * 64;
        // 16-bit coefficients and 8-bit samples.
        let planes = samples * 3;
        let pixels = width * height * (self.components.len() as u64).max(3);
        // Four inks become three colours in memory of their own.
        let converted = if self.components.len() > 3 {
            width * height * 3
        } else {
            0
        };
        Ok(planes + pixels + converted)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start of image, a comment, Huffman tables without a table, and a frame of 640×480 in 4:2:0.
    const JPEG: &[u8] = &[
        0xFF, 0xD8, 0xFF, 0xFE, 0, 4, 0xFF, 0xC0, 0xFF, 0xFF, 0xC4, 0, 2, 0xFF, 0xC2, 0, 17, 8, 1, 0xE0, 2,
        0x80, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1, 0xFF, 0xDA,
    ];

    #[test]
    fn the_first_frame_is_found() {
        let header = FrameHeader::find(JPEG).unwrap();
        assert_eq!((header.width, header.height), (640, 480));
        assert_eq!(header.components, [[2, 2], [1, 1], [1, 1]]);
        // 41 × 31 units of 6 blocks of 64 samples, 3 bytes each; 3 bytes a pixel.
        assert_eq!(header.memory().unwrap(), 41 * 31 * 6 * 64 * 3 + 640 * 480 * 3);
        for cut in 0..32 {
            assert_eq!(FrameHeader::find(&JPEG[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_scan_or_no_component_is_no_frame() {
        assert_eq!(
            FrameHeader::find(&[&JPEG[..2], &JPEG[32..], &JPEG[2..]].concat()),
            None
        );
        let mut none = JPEG.to_vec();
        none[22] = 0;
        assert!(FrameHeader::find(&none).unwrap().memory().is_err());
        none[22] = 1;
        none[24] = 0x02;
        assert!(FrameHeader::find(&none).unwrap().memory().is_err());
    }
}
