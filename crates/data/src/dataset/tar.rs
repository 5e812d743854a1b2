//! Lists the files of tar archives: ustar, with the long names of GNU and of POSIX (pax).

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// Length of a header, and unit of the content's length.
const BLOCK: u64 = 512;

/// Maximum length of a long name or a pax header.
const LONGEST_NAME: u64 = 1 << 20;

/// A regular file in an archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Offset of the content, in bytes.
    pub(super) offset: u64,
    /// Length of the content, in bytes.
    pub(super) length: u64,
}

/// Lists the regular files of an archive. Seeks over their content.
pub(super) fn list(file: &mut File) -> io::Result<Vec<Entry>> {
    let end = file.metadata()?.len();
    let mut entries = Vec::new();
    let mut long = Attributes::default();
    let mut offset = 0;
    let mut header = [0; BLOCK as usize];
    // Archives end with two empty blocks, but some end early.
    while offset + BLOCK <= end {
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut header)?;
        if header == [0; BLOCK as usize] {
            break;
        }
        check_sum(&header)?;
        let own_length = number(&header[124..136])?;
        offset += BLOCK;
        let kind = header[156];
        let length = match kind {
            b'L' | b'x' | b'g' => own_length,
            _ => long.length.unwrap_or(own_length),
        };
        if length > end - offset {
            return Err(invalid("ends before the content of its last file"));
        }
        match kind {
            b'L' => long.name = Some(text(&content(file, length)?)),
            b'x' => long.read(&content(file, length)?)?,
            b'0' | 0 | b'7' => {
                let name = long.name.take().unwrap_or_else(|| name(&header));
                entries.push(Entry { name, offset, length });
                long = Attributes::default();
            }
            // Attributes of the whole archive, such as a comment of git.
            b'g' => {}
            // Directories, links and devices.
            _ => long = Attributes::default(),
        }
        offset += length.div_ceil(BLOCK) * BLOCK;
    }
    Ok(entries)
}

/// Attributes of the next file, from headers before it.
#[derive(Default)]
struct Attributes {
    name: Option<String>,
    length: Option<u64>,
}

impl Attributes {
    /// Reads pax records: `LENGTH KEY=VALUE\n`.
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let damaged = || invalid("has a damaged pax header");
        while !bytes.is_empty() {
            let space = bytes.iter().position(|&byte| byte == b' ').ok_or_else(damaged)?;
            let length: usize = text(&bytes[..space]).parse().map_err(|_| damaged())?;
            let record = bytes.get(space + 1..length).ok_or_else(damaged)?;
            let record = text(record.strip_suffix(b"\n").unwrap_or(record));
            let (key, value) = record.split_once('=').ok_or_else(damaged)?;
            match key {
                "path" => self.name = Some(value.to_owned()),
                "size" => self.length = Some(value.parse().map_err(|_| damaged())?),
                _ => {}
            }
            bytes = &bytes[length..];
        }
        Ok(())
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

fn content(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    if length > LONGEST_NAME {
        return Err(invalid("has a name of more than 1 MiB"));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Returns the text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn name(header: &[u8]) -> String {
    let name = text(&header[..100]);
    let prefix = text(&header[345..500]);
    // Old GNU archives keep times where ustar keeps the prefix.
    if &header[257..263] != b"ustar\0" || prefix.is_empty() {
        name
    } else {
        format!("{prefix}/{name}")
    }
}

/// Reads a number in octal digits, or in base 256 if the first bit is set.
fn number(field: &[u8]) -> io::Result<u64> {
    if field[0] & 0x80 != 0 {
        let bytes = field[field.len() - 8..].try_into().unwrap_or([0; 8]);
        return Ok(u64::from_be_bytes(bytes) & (u64::MAX >> 1));
    }
    let digits = text(field);
    match digits.trim() {
        "" => Ok(0),
        digits => u64::from_str_radix(digits, 8).map_err(|_| invalid("has a damaged header")),
    }
}

fn check_sum(header: &[u8]) -> io::Result<()> {
    // The sum's own field counts as spaces.
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    let found = sum(&header[..148]) + 8 * u64::from(b' ') + sum(&header[156..]);
    if number(&header[148..156]).is_ok_and(|stored| stored == found) {
        Ok(())
    } else {
        Err(invalid("is not a tar archive, or is compressed or damaged"))
    }
}
