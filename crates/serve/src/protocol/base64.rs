//! Files as base64 text: in the standard or the URL alphabet, with or without padding and line breaks, alone or in a `data:` URL.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

use super::tensor_error::TensorError;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// URL prefixes that a server might be expected to fetch.
const FETCHED: [&str; 6] = ["http://", "https://", "file://", "s3://", "gs://", "hf://"];

/// First bytes of image files, and their base64 text.
const IMAGES: [(&[u8], &str); 6] = [
    (b"\x89PNG\r\n\x1a\n", "iVBORw0KGg"),
    (b"\xff\xd8\xff", "/9j/"),
    (b"GIF8", "R0lGO"),
    (b"RIFF", "UklGR"),
    (b"II*\0", "SUkqA"),
    (b"MM\0*", "TU0AK"),
];

/// Number of characters that [`is_image`] checks: enough for the signature of a file.
const SIGNATURE: usize = 16;

/// Returns true if `text` names a file that would have to be fetched.
pub(crate) fn is_url(text: &str) -> bool {
    let begins = |scheme: &&str| {
        let begin = text.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    FETCHED.iter().any(begins)
}

/// Returns true if `text` begins as a `data:` URL.
pub(crate) fn is_data_url(text: &str) -> bool {
    text.get(..5)
        .is_some_and(|begin| begin.eq_ignore_ascii_case("data:"))
}

/// Returns true if `text` is the base64 of an image file.
pub(crate) fn is_image(text: &[u8]) -> bool {
    let Some(begin) = text
        .get(..SIGNATURE)
        .and_then(|begin| std::str::from_utf8(begin).ok())
    else {
        return false;
    };
    let begin = begin.replace('-', "+").replace('_', "/");
    // A text of words has a space or a full stop early.
    let is_base64 = |&byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=\r\n".contains(&byte);
    IMAGES.iter().any(|(_, signature)| begin.starts_with(signature))
        && text.iter().take(200).all(is_base64)
        && text.len() > 40
}

/// Decodes a file from base64, or from a `data:` URL with base64.
///
/// # Errors
///
/// A message with what the text is instead and what to send.
pub(crate) fn decode_base64(text: &str) -> Result<Bytes, TensorError> {
    if is_url(text) {
        return Err(
            "is a URL. The server fetches nothing: send the file itself, as base64 or as a data: URL".into(),
        );
    }
    let is_data = is_data_url(text);
    let encoded = match text.split_once(',').filter(|_| is_data) {
        Some((kind, encoded)) if kind.to_ascii_lowercase().trim_end().ends_with(";base64") => encoded,
        _ if is_data => {
            return Err("is a data: URL without base64. Write it as data:image/png;base64,…".into());
        }
        _ => text,
    };
    if let Ok(bytes) = BASE64.decode(encoded) {
        return Ok(bytes.into());
    }
    let plain = standard(encoded, is_data)?;
    let decoded = BASE64.decode(plain).map(Bytes::from);
    decoded.map_err(|_| "is not base64: it ends within a byte. Was it cut?".into())
}

/// Returns base64 text in the standard alphabet and without white space. In URLs `%` begins an escaped byte.
fn standard(encoded: &str, in_url: bool) -> Result<Vec<u8>, TensorError> {
    let mut plain = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        let byte = match byte {
            b'%' if in_url => {
                let hex = encoded.get(at + 1..at + 3);
                let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                bytes.nth(1);
                escaped.unwrap_or(b'%')
            }
            byte => byte,
        };
        match byte {
            b'-' => plain.push(b'+'),
            b'_' => plain.push(b'/'),
            b'+' | b'/' | b'=' => plain.push(byte),
            byte if byte.is_ascii_alphanumeric() => plain.push(byte),
            byte if byte.is_ascii_whitespace() => {}
            _ => {
                let wrong = encoded.get(at..).and_then(|rest| rest.chars().next());
                let wrong = wrong.unwrap_or(char::REPLACEMENT_CHARACTER);
                return Err(format!(
                    "is not base64: byte {at} is {wrong:?}. Send the bytes of the file as base64"
                )
                .into());
            }
        }
    }
    Ok(plain)
}

/// Encodes bytes in the standard alphabet, with padding.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Returns what an element is instead of an image file, if it is a common mistake of clients.
pub(crate) fn mistaken_for_image(bytes: &[u8]) -> Option<&'static str> {
    let begin = String::from_utf8_lossy(bytes.get(..SIGNATURE).unwrap_or(bytes));
    if is_url(&begin) {
        Some("is a URL. The server fetches nothing: send the bytes of the file")
    } else if is_data_url(&begin) {
        Some("is a data: URL within binary data. Send the bytes of the file, or the URL in JSON")
    } else if is_image(bytes) {
        Some(
            "is base64 where the bytes of the file are expected. Decode it, or send it in JSON, encoded once",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes whose base64 has `+`, `/` and padding.
    const BYTES: [u8; 7] = [0xfb, 0xef, 0xbe, 0xff, 0xff, 0xff, 0x01];

    #[test]
    fn every_common_form_of_base64_is_read() {
        let standard = "++++////AQ==";
        assert_eq!(encode_base64(&BYTES), standard);
        for text in [
            standard,
            "++++////AQ",
            "----____AQ==",
            "----____AQ",
            "++++\n////\r\nAQ==\n",
            "  ++++////\tAQ== ",
            "data:image/png;base64,++++////AQ==",
            "data:;base64,----____AQ",
            "DATA:image/png;Base64,++++////AQ==",
            "data:image/png;charset=x;base64,++++%2F%2f//AQ%3D%3D",
            "data:image/png;base64,%2B%2B++//%0A//AQ==",
        ] {
            assert_eq!(decode_base64(text).as_deref(), Ok(&BYTES[..]), "{text}");
        }
    }

    #[test]
    fn what_is_not_base64_says_what_to_send() {
        for (text, expected) in [
            (
                "https://example.com/cat.png",
                "is a URL. The server fetches nothing",
            ),
            ("FILE:///tmp/cat.png", "is a URL. The server fetches nothing"),
            ("data:image/png,abc", "is a data: URL without base64"),
            ("data:image/png;base64", "is a data: URL without base64"),
            ("images/cat.png", "is not base64: byte 10 is '.'"),
            ("AAé", "is not base64: byte 2 is 'é'"),
            ("AAAAA", "is not base64: it ends within a byte"),
            ("%%%", "is not base64: byte 0 is '%'"),
        ] {
            let error = decode_base64(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn base64_of_an_image_is_told_from_a_text_and_from_a_file() {
        for (signature, _) in IMAGES {
            let file = [signature, &[0x5a; 60]].concat();
            assert!(mistaken_for_image(&file).is_none());
            let text = encode_base64(&file);
            assert!(is_image(text.as_bytes()), "{text}");
            assert!(mistaken_for_image(text.as_bytes()).unwrap().contains("base64"));
        }
        assert!(!is_image(b"/9j/ is how the base64 of a JPEG file begins"));
        assert!(mistaken_for_image(b"http://a/b.png").unwrap().contains("URL"));
        assert!(
            mistaken_for_image(b"data:image/png;base64,AA==")
                .unwrap()
                .contains("data:")
        );
    }
}
