//! Converts text files in UTF-8 with a byte order mark or in UTF-16 to plain UTF-8.

use std::borrow::Cow;

/// Reasons why the encoding of a text cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// The text begins with the byte order mark of UTF-32.
    #[error("is in UTF-32. Save it in UTF-8")]
    Utf32,
    /// The text begins as UTF-16 but is not valid UTF-16.
    #[error("is not valid UTF-16. Save it in UTF-8")]
    InvalidUtf16,
    /// The text contains NUL bytes and does not look like UTF-16.
    #[error("contains NUL bytes. Save it as UTF-8 if it is UTF-16")]
    Nul,
}

/// Byte order of UTF-16 code units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Utf16 {
    LittleEndian,
    BigEndian,
}

/// Removes a byte order mark, and converts UTF-16 to UTF-8. Other bytes are returned unchanged, because paths may be
/// any bytes.
///
/// Text with NUL bytes but without a byte order mark must be UTF-16, unless `takes_nul` is true.
///
/// # Errors
///
/// Returns an [`EncodingError`] if the text is UTF-32 or invalid UTF-16, or contains NUL bytes that are not part of
/// UTF-16.
pub fn to_utf8(bytes: &[u8], takes_nul: bool) -> Result<Cow<'_, [u8]>, EncodingError> {
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => Ok(Cow::Borrowed(rest)),
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Err(EncodingError::Utf32),
        [0xff, 0xfe, rest @ ..] => from_utf16(rest, Utf16::LittleEndian).map(Cow::Owned),
        [0xfe, 0xff, rest @ ..] => from_utf16(rest, Utf16::BigEndian).map(Cow::Owned),
        _ if takes_nul || !bytes.contains(&0) => Ok(Cow::Borrowed(bytes)),
        _ => match utf16_without_mark(bytes) {
            Some(order) => from_utf16(bytes, order).map(Cow::Owned),
            None => Err(EncodingError::Nul),
        },
    }
}

/// Returns the byte order if the text looks like UTF-16 without a byte order mark.
///
/// Lists consist mostly of ASCII characters. In UTF-16, every other byte of such a text is NUL.
fn utf16_without_mark(bytes: &[u8]) -> Option<Utf16> {
    let nulls = |first: usize| {
        bytes
            .iter()
            .skip(first)
            .step_by(2)
            .filter(|&&byte| byte == 0)
            .count()
    };
    let (even, odd) = (nulls(0), nulls(1));
    // Accept the text if at most one character in five is outside Latin-1.
    let enough = bytes.len() * 2 / 5;
    match (even, odd) {
        (0, odd) if odd >= enough => Some(Utf16::LittleEndian),
        (even, 0) if even >= enough => Some(Utf16::BigEndian),
        _ => None,
    }
}

fn from_utf16(bytes: &[u8], order: Utf16) -> Result<Vec<u8>, EncodingError> {
    let (units, rest) = bytes.as_chunks::<2>();
    let unit = |&pair: &[u8; 2]| match order {
        Utf16::LittleEndian => u16::from_le_bytes(pair),
        Utf16::BigEndian => u16::from_be_bytes(pair),
    };
    let text: Result<String, _> = char::decode_utf16(units.iter().map(unit)).collect();
    match text {
        Ok(text) if rest.is_empty() => Ok(text.into_bytes()),
        _ => Err(EncodingError::InvalidUtf16),
    }
}
