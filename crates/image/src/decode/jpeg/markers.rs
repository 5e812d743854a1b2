//! Parses the segments between markers: tables, frame headers and scan headers.

use super::frame::Frame;
use super::huffman::{self, Huffman};
use crate::decode::failure::Failure;

/// Steps of a quantisation table, row by row.
pub(super) type Steps = [i16; 64];

/// Maps the position of a coefficient in file order to its position in the block. Positions beyond 63, which damaged
/// files reach, map to 63.
pub(super) const ZIGZAG: [u8; 128] = {
    let mut order = [63; 128];
    let (mut x, mut y, mut at) = (0_usize, 0_usize, 0);
    while at < 64 {
        order[at] = (8 * y + x) as u8;
        let up = (x + y).is_multiple_of(2);
        match (up, x, y) {
            (true, 7, _) => y += 1,
            (true, _, 0) => x += 1,
            (true, ..) => {
                x += 1;
                y -= 1;
            }
            (false, _, 7) => x += 1,
            (false, 0, _) => y += 1,
            (false, ..) => {
                x -= 1;
                y += 1;
            }
        }
        at += 1;
    }
    order
};

const SOI: u8 = 0xD8;
const EOI: u8 = 0xD9;

/// State collected from the segments read so far.
pub(super) struct Markers<'a> {
    bytes: &'a [u8],
    at: usize,
    pub(super) frame: Option<Frame>,
    quantisation: [Option<Steps>; 4],
    dc: [Option<Huffman>; 4],
    ac: [Option<Huffman>; 4],
    /// Number of MCUs between two restart markers, or 0 without restart markers.
    pub(super) restart_interval: usize,
    pub(super) jfif: bool,
    /// Colour transform of Adobe's marker.
    pub(super) adobe: Option<u8>,
    /// True if the image may end at the end of the bytes, without EOI.
    end_implied: bool,
    /// Segments of EXIF data. Only the first has its prefix.
    pub(super) exif: Vec<&'a [u8]>,
    /// XMP of the last segment that has it.
    pub(super) xmp: Option<&'a [u8]>,
}

/// A scan header.
pub(super) struct Scan {
    /// Position of the scan's data.
    pub(super) data: usize,
    /// Components in frame order, with the indices of their DC and AC tables.
    pub(super) components: Vec<ScanComponent>,
    /// Range of coefficients of a progressive scan, in file order.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Number of bits of precision that are missing before and after a progressive scan.
    pub(super) high: u32,
    pub(super) low: u32,
}

#[derive(Clone, Copy)]
pub(super) struct ScanComponent {
    pub(super) index: usize,
    pub(super) dc: usize,
    pub(super) ac: usize,
}

impl<'a> Markers<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Failure> {
        if !bytes.starts_with(&[0xFF, SOI]) {
            return Err("damaged JPEG: it does not begin with SOI".into());
        }
        Ok(Self {
            bytes,
            at: 2,
            frame: None,
            quantisation: [None; 4],
            dc: [None, None, None, None],
            ac: [None, None, None, None],
            restart_interval: 0,
            jfif: false,
            adobe: None,
            end_implied: false,
            exif: Vec::new(),
            xmp: None,
        })
    }

    /// Allows an image without EOI to end at the end of the bytes.
    #[cfg(feature = "tiff")]
    pub(super) fn imply_end(&mut self) {
        self.end_implied = true;
    }

    /// Starts with the tables of another stream. In a TIFF, several JPEGs can share tables.
    #[cfg(feature = "tiff")]
    pub(super) fn with_tables(bytes: &'a [u8], tables: &'a [u8]) -> Result<Self, Failure> {
        let mut before = Self::new(tables)?;
        if before.next_scan()?.is_some() || before.frame.is_some() {
            return Err("damaged JPEG: an image is among its tables".into());
        }
        // All other state starts anew with the image.
        Ok(Self {
            quantisation: before.quantisation,
            dc: before.dc,
            ac: before.ac,
            ..Self::new(bytes)?
        })
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Continues at `at`, after the data of a scan.
    pub(super) fn resume(&mut self, at: usize) {
        self.at = at;
    }

    /// Reads segments up to the next scan header. Returns `None` at the end of the image.
    pub(super) fn next_scan(&mut self) -> Result<Option<Scan>, Failure> {
        loop {
            let marker = self.marker()?;
            match marker {
                EOI => return Ok(None),
                SOI => return Err("damaged JPEG: a second image begins within it".into()),
                // Restart markers and TEM have no segment.
                0x01 | 0xD0..=0xD7 => continue,
                _ => {}
            }
            let segment = self.segment()?;
            match marker {
                0xC0..=0xC2 if self.frame.is_some() => return Err("damaged JPEG: it has two frames".into()),
                0xC0..=0xC2 => self.frame = Some(Frame::parse(segment, marker == 0xC2)?),
                0xC3 | 0xC7 | 0xCB | 0xCF => return Err(Failure::unsupported("a lossless JPEG")),
                0xC5 | 0xC6 => return Err(Failure::unsupported("a hierarchical JPEG")),
                0xC9 | 0xCA | 0xCD | 0xCE => {
                    return Err(Failure::unsupported("a JPEG with arithmetic coding"));
                }
                0xC4 => self.huffman_tables(segment)?,
                0xDB => self.quantisation_tables(segment)?,
                0xDD => {
                    let interval = segment.try_into().map_err(|_| wrong_length("restart interval"))?;
                    self.restart_interval = u16::from_be_bytes(interval).into();
                }
                0xDA => return self.scan(segment).map(Some),
                0xE1 => self.application_1(segment),
                0xE0 => self.jfif |= segment.len() >= 14 && segment.starts_with(b"JFIF\0"),
                0xEE if segment.len() >= 12 && segment.starts_with(b"Adobe") => {
                    self.adobe = Some(segment[11]);
                }
                // Arithmetic conditioning, number of lines, application data and comments are ignored.
                0xCC | 0xDC | 0xE0..=0xEF | 0xFE => {}
                _ => return Err(format!("damaged JPEG: an unknown marker (0x{marker:02X})").into()),
            }
        }
    }

    /// Returns the next marker. Skips bytes before it.
    fn marker(&mut self) -> Result<u8, Failure> {
        match next_marker(self.bytes, self.at) {
            Ok((marker, at)) => {
                self.at = at;
                Ok(marker)
            }
            Err(_) if self.end_implied => Ok(EOI),
            Err(failure) => Err(failure),
        }
    }

    fn segment(&mut self) -> Result<&'a [u8], Failure> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let length = rest.first_chunk().ok_or_else(cut)?;
        let length = usize::from(u16::from_be_bytes(*length));
        if length < 2 {
            return Err("damaged JPEG: a segment's length is less than 2".into());
        }
        let segment = rest.get(2..length).ok_or_else(cut)?;
        self.at += length;
        Ok(segment)
    }

    fn application_1(&mut self, segment: &'a [u8]) {
        if let Some(rest) = segment.strip_prefix(b"Exif\0\0") {
            self.exif.push(if self.exif.is_empty() { segment } else { rest });
        } else if let Some(xmp) = segment.strip_prefix(b"http://ns.adobe.com/xap/1.0/\0") {
            self.xmp = Some(xmp);
        }
    }

    fn huffman_tables(&mut self, mut segment: &[u8]) -> Result<(), Failure> {
        while let Some((&which, rest)) = segment.split_first() {
            let (counts, rest) = rest
                .split_first_chunk::<16>()
                .ok_or_else(|| wrong_length("Huffman table"))?;
            let codes = counts.iter().copied().map(usize::from).sum();
            let (symbols, rest) = rest
                .split_at_checked(codes)
                .ok_or_else(|| wrong_length("Huffman table"))?;
            let tables = match which >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err("damaged JPEG: the class of a Huffman table is not 0 or 1".into()),
            };
            let table = tables
                .get_mut(usize::from(which & 15))
                .ok_or("damaged JPEG: the number of a Huffman table is above 3")?;
            *table = Some(Huffman::new(counts, symbols)?);
            segment = rest;
        }
        Ok(())
    }

    fn quantisation_tables(&mut self, mut segment: &[u8]) -> Result<(), Failure> {
        while let Some((&which, rest)) = segment.split_first() {
            let wide = which >> 4 != 0;
            let size = if wide { 128 } else { 64 };
            let (values, rest) = rest
                .split_at_checked(size)
                .ok_or_else(|| wrong_length("quantisation table"))?;
            let table = self
                .quantisation
                .get_mut(usize::from(which & 15))
                .ok_or("damaged JPEG: the number of a quantisation table is above 3")?;
            let mut steps = [0; 64];
            for (at, step) in ZIGZAG.iter().zip(0..64) {
                let value = if wide {
                    u16::from_be_bytes([values[2 * step], values[2 * step + 1]])
                } else {
                    values[step].into()
                };
                // Products with coefficients are computed modulo 2^16.
                steps[usize::from(*at)] = value as i16;
            }
            *table = Some(steps);
            segment = rest;
        }
        Ok(())
    }

    fn scan(&self, segment: &[u8]) -> Result<Scan, Failure> {
        let frame = self
            .frame
            .as_ref()
            .ok_or("damaged JPEG: a scan without a frame")?;
        let (&count, rest) = segment.split_first().ok_or_else(|| wrong_length("scan header"))?;
        let (named, rest) = rest
            .split_at_checked(2 * usize::from(count))
            .ok_or_else(|| wrong_length("scan header"))?;
        let &[first, last, precision] = rest else {
            return Err(wrong_length("scan header"));
        };
        if !(1..=4).contains(&count) {
            return Err("damaged JPEG: a scan does not have 1 to 4 components".into());
        }
        let (named, _) = named.as_chunks::<2>();
        let scanned = frame.scanned(named.iter().map(|named| named[0]))?;
        let components = scanned
            .into_iter()
            .zip(named)
            .map(|(index, &[_, tables])| ScanComponent {
                index,
                dc: (tables >> 4).into(),
                ac: (tables & 15).into(),
            })
            .collect();
        let scan = Scan {
            data: self.at,
            components,
            first: first.into(),
            last: last.into(),
            high: (precision >> 4).into(),
            low: (precision & 15).into(),
        };
        let valid = match (scan.first, scan.last) {
            _ if !frame.progressive => true,
            (0, 0) => true,
            (first, last) => first > 0 && first <= last && last < 64 && count == 1,
        };
        let refined = scan.high == 0 || scan.high == scan.low + 1;
        if frame.progressive && !(valid && refined && scan.low <= 13) {
            return Err("damaged JPEG: a progressive scan has impossible parameters".into());
        }
        Ok(scan)
    }

    /// Returns the quantisation steps of table `table`.
    pub(super) fn steps(&self, table: usize) -> Result<Steps, Failure> {
        let steps = self.quantisation.get(table).copied().flatten();
        steps.ok_or_else(|| "damaged JPEG: a quantisation table is missing".into())
    }

    /// Adds the standard's Huffman tables where none are defined. Frames of Motion JPEG omit them.
    pub(super) fn default_tables(&mut self) -> Result<(), Failure> {
        for (tables, ac) in [(&mut self.dc, false), (&mut self.ac, true)] {
            for (table, chroma) in tables.iter_mut().zip([false, true]) {
                if table.is_none() {
                    *table = Some(huffman::standard(ac, chroma)?);
                }
            }
        }
        Ok(())
    }

    pub(super) fn dc(&self, table: usize) -> Result<&Huffman, Failure> {
        let huffman = present(&self.dc, table)?;
        if huffman.is_dc_code() {
            Ok(huffman)
        } else {
            Err("damaged JPEG: a DC coefficient has more than 15 bits".into())
        }
    }

    pub(super) fn ac(&self, table: usize) -> Result<&Huffman, Failure> {
        present(&self.ac, table)
    }
}

fn present(tables: &[Option<Huffman>; 4], table: usize) -> Result<&Huffman, Failure> {
    let table = tables.get(table).and_then(Option::as_ref);
    table.ok_or_else(|| "damaged JPEG: a Huffman table is missing".into())
}

/// Returns the next marker at or after `at`, and the position of its segment.
pub(super) fn next_marker(bytes: &[u8], at: usize) -> Result<(u8, usize), Failure> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let marker = rest
        .windows(2)
        .position(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF));
    let found = marker.ok_or_else(cut)?;
    Ok((rest[found + 1], at + found + 2))
}

/// Returns the error for a file that ends before the image does.
pub(super) fn cut() -> Failure {
    Failure::truncated("truncated JPEG: the file ends before the image does")
}

fn wrong_length(what: &str) -> Failure {
    format!("damaged JPEG: a {what} has the wrong length").into()
}
