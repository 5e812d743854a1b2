//! NumPy's file format for arrays: the header, and files with matrices in f32.
//!
//! Implemented here because existing crates add a parser generator for a header of one line.

/// First bytes of a file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Dtype, such as `<f4`.
    pub descr: &'a str,
    /// True if the first extent varies fastest.
    pub fortran: bool,
    /// Extents of the array.
    pub shape: Vec<usize>,
    /// Position of the first element in the file.
    pub data: usize,
}

/// Parses the header of a file. Returns `None` if the bytes do not begin with a valid header.
pub fn parse(bytes: &[u8]) -> Option<Header<'_>> {
    let (length, begin) = match bytes.strip_prefix(MAGIC)? {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 10),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
        _ => return None,
    };
    let data = begin + length;
    let header = std::str::from_utf8(bytes.get(begin..data)?).ok()?;
    let (descr, _) = field(header, "descr")?.strip_prefix('\'')?.split_once('\'')?;
    let (shape, _) = field(header, "shape")?.strip_prefix('(')?.split_once(')')?;
    let extents = shape
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty());
    Some(Header {
        descr,
        fortran: field(header, "fortran_order")?.starts_with("True"),
        shape: extents.map(|extent| extent.parse().ok()).collect::<Option<_>>()?,
        data,
    })
}

/// Returns the text after a key of the header, which is a Python literal.
fn field<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

/// Returns a header of format version 1.0, padded with spaces to align the data to 64 bytes.
pub fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    const VERSION: &[u8] = &[1, 0];
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let extents = extents.join(", ");
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}{comma}), }}");
    while !(MAGIC.len() + 4 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    // The text is far shorter than 64 KiB.
    let length = (text.len() as u16).to_le_bytes();
    [MAGIC, VERSION, &length, text.as_bytes()].concat()
}

/// Returns a file with a matrix in f32, row by row.
pub fn bytes(shape: [usize; 2], values: &[f32]) -> Vec<u8> {
    let mut file = header("<f4", &shape);
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    file
}
