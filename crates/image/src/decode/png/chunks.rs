//! Reads the chunks of a PNG. Makes a regular copy of a file in which chunks other than the pixels are damaged or
//! missing.

use std::borrow::Cow;

use flate2::{Decompress, FlushDecompress};

use crate::decode::failure::Failure;

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// Number of bytes of a chunk without its content: length, kind and checksum.
const FRAME_BYTES: usize = 12;

/// Length of the header's content.
const HEADER_BYTES: usize = 13;

/// A chunk of the file.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'a> {
    pub(super) kind: &'a [u8; 4],
    /// Content, up to the end of the file if the chunk is cut off.
    pub(super) content: &'a [u8],
    /// Checksum of kind and content, or `None` if the chunk is cut off.
    checksum: Option<u32>,
}

impl Chunk<'_> {
    fn is_whole(&self) -> bool {
        self.checksum.is_some()
    }

    /// Returns true if the stored checksum matches the chunk.
    fn has_right_checksum(&self) -> bool {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(self.kind);
        hasher.update(self.content);
        self.checksum == Some(hasher.finalize())
    }

    /// Returns true if a decoder may ignore the chunk.
    fn is_ancillary(&self) -> bool {
        self.kind.iter().all(u8::is_ascii_alphabetic) && self.kind[0].is_ascii_lowercase()
    }

    fn write(&self, file: &mut Vec<u8>) {
        file.extend((self.content.len() as u32).to_be_bytes());
        file.extend(self.kind);
        file.extend(self.content);
        // The decoder does not verify checksums.
        file.extend([0; 4]);
    }
}

/// Iterator over the chunks of a file. It ends at `IEND`, at an invalid chunk name, or at the end of the file.
pub(super) struct Chunks<'a>(&'a [u8]);

impl<'a> Chunks<'a> {
    pub(super) fn new(file: &'a [u8]) -> Self {
        Self(file.get(SIGNATURE.len()..).unwrap_or_default())
    }

    /// Takes and returns the next chunk if `accepts` returns true for it.
    fn next_if(&mut self, accepts: impl FnOnce(&Chunk<'a>) -> bool) -> Option<Chunk<'a>> {
        let mut rest = Chunks(self.0);
        let chunk = rest.next().filter(accepts)?;
        *self = rest;
        Some(chunk)
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if !kind.iter().all(is_name_byte) || kind == b"IEND" {
            return None;
        }
        let length = u32::from_be_bytes(*length) as usize;
        let (content, rest) = rest.split_at(length.min(rest.len()));
        let checksum = rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        self.0 = rest.get(4..).unwrap_or_default();
        Some(Chunk {
            kind,
            content,
            checksum,
        })
    }
}

/// Number of zeros appended to data that is cut off: more than the decoder looks ahead.
const PADDING: usize = 8;

/// Parts of a file that the decoder needs.
pub(super) struct Parts<'a> {
    header: [u8; HEADER_BYTES],
    palette: Option<Chunk<'a>>,
    /// Rest of the file, from its first `IDAT` on.
    data: &'a [u8],
    /// True if the decoder can read the file unchanged.
    regular: bool,
}

impl<'a> Parts<'a> {
    /// Finds the header, the palette and the data. Checksums of the header and the palette must match.
    ///
    /// Other checksums do not matter, because Pillow shows the picture or no pixel depends on them.
    pub(super) fn find(file: &'a [u8]) -> Result<Self, Failure> {
        if !file.starts_with(SIGNATURE) {
            return Err("damaged PNG: its first 8 bytes are not the PNG signature".into());
        }
        let mut chunks = Chunks::new(file);
        let (mut before, mut header) = (0, chunks.next().ok_or(CUT)?);
        while header.kind != b"IHDR" {
            before += 1;
            header = chunks.next().ok_or("damaged PNG: it has no header (IHDR)")?;
        }
        let mut parts = Self {
            header: checked_header(&header)?,
            palette: None,
            data: &[],
            regular: before == 0,
        };
        parts.regular &= parts.header == *header.content;
        while let Some(chunk) = chunks.next_if(|chunk| chunk.kind != b"IDAT") {
            match chunk.kind {
                b"PLTE" if parts.palette.is_none() => parts.palette = Some(checked_palette(chunk)?),
                b"acTL" | b"fcTL" | b"fdAT" => {}
                _ => parts.regular &= chunk.is_ancillary(),
            }
        }
        parts.data = chunks.0;
        let mut has_data = false;
        while let Some(chunk) = chunks.next_if(|chunk| chunk.kind == b"IDAT") {
            parts.regular &= chunk.is_whole();
            has_data = true;
        }
        if !has_data {
            return Err(CUT);
        }
        parts.regular &= match chunks.next() {
            Some(chunk) => chunk.is_ancillary() && chunk.is_whole(),
            None => chunks_end_with_iend(file),
        };
        Ok(parts)
    }

    /// Iterates over the chunks with data, at least one. They are parsed each time, because a list of empty chunks
    /// would take more memory than the file.
    fn data(&self) -> impl Iterator<Item = Chunk<'a>> {
        Chunks(self.data).take_while(|chunk| chunk.kind == b"IDAT")
    }

    /// Returns width and height.
    pub(super) fn size(&self) -> (u32, u32) {
        let side = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| self.header[at + byte]));
        (side(0), side(4))
    }

    /// Returns the number of bytes of the decompressed data: the rows of all passes, each after its filter byte.
    pub(super) fn decompressed_bytes(&self) -> u64 {
        let [.., depth, color, _, _, interlace] = self.header;
        let channels = match color {
            2 => 3,
            4 => 2,
            6 => 4,
            _ => 1,
        };
        let (width, height) = self.size();
        let pass = |width: u64, height: u64| match width {
            0 => 0,
            _ => height * (1 + (width * channels * u64::from(depth)).div_ceil(8)),
        };
        let part = |side: u32, first: u32, step: u32| u64::from(side.saturating_sub(first).div_ceil(step));
        if interlace == 0 {
            return pass(width.into(), height.into());
        }
        // Adam7: first column, first row, and the steps between columns and rows.
        let passes = [
            (0, 0, 8, 8),
            (4, 0, 8, 8),
            (0, 4, 4, 8),
            (2, 0, 4, 4),
            (0, 2, 2, 4),
            (1, 0, 2, 2),
            (0, 1, 1, 2),
        ];
        let bytes = |(x, y, right, down)| pass(part(width, x, right), part(height, y, down));
        passes.into_iter().map(bytes).sum()
    }

    /// Returns true if all data is present, or decompresses to at least `bytes` bytes although its end is missing.
    pub(super) fn decompress_to(&self, bytes: u64) -> bool {
        if self.data().all(|chunk| chunk.is_whole()) {
            return true;
        }
        let mut inflate = Decompress::new(true);
        let mut output = [0; 4096];
        for chunk in self.data() {
            let mut rest = chunk.content;
            loop {
                let (taken, made) = (inflate.total_in(), inflate.total_out());
                let status = inflate.decompress(rest, &mut output, FlushDecompress::None);
                rest = &rest[(inflate.total_in() - taken) as usize..];
                let stalled = inflate.total_out() == made && inflate.total_in() == taken;
                if stalled || status.is_err() || inflate.total_out() >= bytes {
                    break;
                }
            }
        }
        inflate.total_out() >= bytes
    }

    /// Returns the number of bytes of the copy that [`Parts::file`] makes.
    pub(super) fn copied(&self) -> u64 {
        if self.regular {
            return 0;
        }
        let chunks = self.data().chain(self.palette);
        let contents: usize = chunks.map(|chunk| chunk.content.len() + FRAME_BYTES).sum();
        (SIGNATURE.len() + HEADER_BYTES + 3 * FRAME_BYTES + contents + PADDING) as u64
    }

    /// Returns the file, or a copy that contains only the header, the palette, the data and the end.
    pub(super) fn file(&self, file: &'a [u8]) -> Cow<'a, [u8]> {
        if self.regular {
            return Cow::Borrowed(file);
        }
        let part = |kind, content| Chunk {
            kind,
            content,
            checksum: None,
        };
        let mut copy = Vec::with_capacity(self.copied() as usize);
        copy.extend(SIGNATURE);
        part(b"IHDR", &self.header).write(&mut copy);
        self.palette
            .into_iter()
            .chain(self.data())
            .for_each(|chunk| chunk.write(&mut copy));
        part(b"IDAT", &[0; PADDING]).write(&mut copy);
        part(b"IEND", &[]).write(&mut copy);
        Cow::Owned(copy)
    }
}

pub(super) const CUT: Failure = Failure::truncated("the PNG is truncated");

/// Returns true if the chunks end with the 12 bytes of `IEND`.
fn chunks_end_with_iend(file: &[u8]) -> bool {
    let mut chunks = Chunks::new(file);
    chunks.by_ref().for_each(drop);
    chunks.0.len() >= FRAME_BYTES && chunks.0.starts_with(b"\0\0\0\0IEND")
}

/// Returns the header's content as the decoder expects it. Pillow treats any interlace method except 0 as Adam7.
fn checked_header(chunk: &Chunk<'_>) -> Result<[u8; HEADER_BYTES], Failure> {
    let Some(header) = chunk.content.first_chunk::<HEADER_BYTES>() else {
        return Err(if chunk.is_whole() {
            "damaged PNG: its chunk IHDR is too short".into()
        } else {
            CUT
        });
    };
    check_checksum(chunk, "IHDR")?;
    let &[.., depth, color, _, filter, interlace] = header;
    let valid = match color {
        0 => matches!(depth, 1 | 2 | 4 | 8 | 16),
        3 => matches!(depth, 1 | 2 | 4 | 8),
        2 | 4 | 6 => matches!(depth, 8 | 16),
        _ => false,
    };
    if !valid {
        return Err(
            format!("damaged PNG: colour type {color} with {depth} bits per sample does not exist").into(),
        );
    }
    if filter != 0 {
        return Err(format!("damaged PNG: filter method {filter} does not exist").into());
    }
    let mut header = *header;
    header[10] = 0;
    header[12] = u8::from(interlace != 0);
    Ok(header)
}

fn checked_palette(chunk: Chunk<'_>) -> Result<Chunk<'_>, Failure> {
    check_checksum(&chunk, "PLTE")?;
    if chunk.content.is_empty() || chunk.content.len() > 768 || !chunk.content.len().is_multiple_of(3) {
        return Err("damaged PNG: its palette does not have 1 to 256 colours".into());
    }
    Ok(chunk)
}

fn check_checksum(chunk: &Chunk<'_>, name: &str) -> Result<(), Failure> {
    if !chunk.is_whole() {
        return Err(CUT);
    }
    if !chunk.has_right_checksum() {
        return Err(format!("damaged PNG: the checksum of its chunk {name} is wrong").into());
    }
    Ok(())
}
