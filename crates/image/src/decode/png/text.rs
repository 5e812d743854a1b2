//! Reads the metadata in the chunks of a PNG that may state the orientation: EXIF data, and XMP in text chunks.

use std::borrow::Cow;
use std::io::{ErrorKind, Read};

use flate2::read::ZlibDecoder;

use super::chunks::Chunks;
use crate::decode::failure::Failure;
use crate::decode::memory::Claim;
use crate::decode::metadata::Metadata;

/// Maximum number of bytes of a decompressed text. Pillow rejects longer texts. They are ignored here.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Maximum number of bytes of all decompressed texts. Pillow rejects files with more.
///
/// Further texts are ignored here, so that a small file cannot keep a core busy for long.
const MAX_TOTAL_BYTES: u64 = 64 * MAX_TEXT_BYTES;

/// Maximum number of bytes that one byte of deflated data expands to.
const MAX_EXPANSION: u64 = 1032;

/// Keyword of text chunks that contain XMP.
const XMP: &[u8] = b"XML:com.adobe.xmp";

/// ImageMagick's keyword for EXIF data in hexadecimal digits.
const RAW_PROFILE: &[u8] = b"Raw profile type exif";

/// A text chunk: its keyword and its text.
struct Text<'a> {
    keyword: &'a [u8],
    text: Cow<'a, [u8]>,
    /// False if the text is not in the encoding that its chunk requires.
    readable: bool,
}

/// Returns the EXIF data and the XMP. If several chunks have the same kind, the last one counts.
///
/// Pillow also reads chunks after the data, up to the second frame of an animation.
pub(in crate::decode) fn metadata<'a>(
    file: &'a [u8],
    claim: &mut Claim<'_>,
) -> Result<Metadata<'a>, Failure> {
    let (mut exif, mut raw, mut xmp, mut unreadable_xmp) = (None, None, None, None);
    let (mut frames, mut data_seen) = (0, false);
    let mut budget = MAX_TOTAL_BYTES;
    for chunk in Chunks::new(file) {
        match chunk.kind {
            b"IDAT" => data_seen = true,
            b"acTL" if !data_seen => {
                let count = chunk
                    .content
                    .first_chunk()
                    .map(|count| u32::from_be_bytes(*count));
                frames = count.unwrap_or(0);
            }
            b"fcTL" if data_seen && frames > 1 => break,
            b"eXIf" => exif = Some(Cow::Borrowed(chunk.content)),
            b"tEXt" | b"zTXt" | b"iTXt" => match text(chunk.kind, chunk.content, claim, &mut budget)? {
                Some(Text {
                    keyword: XMP,
                    text,
                    readable: true,
                }) => xmp = Some(text),
                Some(Text {
                    keyword: XMP, text, ..
                }) => unreadable_xmp = Some(text),
                Some(Text { readable: false, .. }) => {}
                Some(Text {
                    keyword: RAW_PROFILE,
                    text,
                    ..
                }) => raw = Some(from_digits(&text, claim)?),
                Some(Text {
                    keyword: b"exif",
                    text,
                    ..
                }) if chunk.kind == b"tEXt" => exif = Some(text),
                _ => {}
            },
            _ => {}
        }
    }
    Ok(Metadata {
        exif: exif.or(raw.map(Cow::Owned)),
        xmp: xmp.filter(|xmp| !xmp.is_empty()).or(unreadable_xmp),
    })
}

/// Reads a text chunk. Returns `None` if it has another keyword, or if its text is damaged or exceeds `budget`.
fn text<'a>(
    kind: &[u8; 4],
    content: &'a [u8],
    claim: &mut Claim<'_>,
    budget: &mut u64,
) -> Result<Option<Text<'a>>, Failure> {
    let Some((keyword, rest)) = split(content) else {
        return Ok(None);
    };
    if ![XMP, RAW_PROFILE, b"exif"].contains(&keyword) {
        return Ok(None);
    }
    let (compressed, names, text) = match kind {
        b"tEXt" => (false, &[][..], rest),
        b"zTXt" => match rest {
            [0, text @ ..] => (true, &[][..], text),
            _ => return Ok(None),
        },
        _ => {
            let &[compressed, method, ref rest @ ..] = rest else {
                return Ok(None);
            };
            // Skip the language and the translated keyword.
            let names = split(rest).and_then(|(language, rest)| Some((language.len() + 1, split(rest)?)));
            match names {
                Some((start, (name, text))) if compressed == 0 || method == 0 => {
                    (compressed != 0, &rest[..start + name.len()], text)
                }
                _ => return Ok(None),
            }
        }
    };
    let text = if compressed {
        decompressed(text, claim, budget)?.map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(text))
    };
    Ok(text.map(|text| Text {
        keyword,
        // The other kinds of text chunks are in Latin-1.
        readable: kind != b"iTXt" || std::str::from_utf8(names).is_ok() && std::str::from_utf8(&text).is_ok(),
        text,
    }))
}

/// Splits the bytes before and after the first zero byte.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Decompresses a text as far as its data goes, and subtracts its length from `budget`. Returns `None` if it is damaged
/// or too long.
fn decompressed(data: &[u8], claim: &mut Claim<'_>, budget: &mut u64) -> Result<Option<Vec<u8>>, Failure> {
    let longest = (data.len() as u64)
        .saturating_mul(MAX_EXPANSION)
        .min(MAX_TEXT_BYTES)
        .min(*budget);
    // Memory for the text, earlier texts, and EXIF data decoded from digits.
    claim.reserve(4 * longest)?;
    let mut text = Vec::with_capacity(longest as usize + 1);
    let read = ZlibDecoder::new(data).take(longest + 1).read_to_end(&mut text);
    let length = text.len() as u64;
    *budget = budget.saturating_sub(length);
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        Err(_) => return Ok(None),
    }
    Ok((length <= longest).then_some(text))
}

/// Decodes a raw profile: an empty line, its name, its length, and lines of hexadecimal digits. Returns nothing if it
/// is damaged.
fn from_digits(profile: &[u8], claim: &mut Claim<'_>) -> Result<Vec<u8>, Failure> {
    claim.reserve((profile.len() as u64).max(MAX_TEXT_BYTES) * 4)?;
    let lines = profile
        .splitn(4, |&byte| byte == b'\n')
        .nth(3)
        .unwrap_or_default();
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let mut digits = lines
        .iter()
        .filter(|byte| !is_space(byte))
        .map(|&byte| (byte as char).to_digit(16));
    let mut bytes = Vec::with_capacity(lines.len() / 2);
    while let Some(high) = digits.next() {
        let Some((high, low)) = high.zip(digits.next().flatten()) else {
            return Ok(Vec::new());
        };
        bytes.push((high << 4 | low) as u8);
    }
    Ok(bytes)
}
