//! Repairs texts line by line, as ftfy's `fix_text` does by default.
//!
//! It repairs mojibake, character references, ligatures, wide letters, curly quotes, line breaks, terminal escapes and
//! control characters.
//!
//! An encoded text is a `String` of characters up to U+00FF, one per byte, so that the library's expressions for bytes
//! apply.

use std::collections::HashMap;

use fancy_regex::Regex;
use tokenizers::NormalizedString;

use super::html::Html;
use super::replace::{Fault, replaced};
use super::tables::{
    BADNESS, BADNESS_SETS, ENCODINGS, LIGATURES, UTF8_DETECTOR, UTF8_DETECTOR_SETS, WINDOWS_1252,
};

/// UTF-8 in which a no-break space became a space.
const ALTERED_UTF8: &str = r"[\xc2\xc3\xc5\xce\xd0\xd9][ ]|[\xe2\xe3][ ][\x80-\x84\x86-\x9f\xa1-\xbf]|[\xe0-\xe3][\x80-\x84\x86-\x9f\xa1-\xbf][ ]|[\xf0][ ][\x80-\xbf][\x80-\xbf]|[\xf0][\x80-\xbf][ ][\x80-\xbf]|[\xf0][\x80-\xbf][\x80-\xbf][ ]";
/// UTF-8 in which bytes were replaced: by 0x1A, which encodes the replacement character here, or by a question mark.
const LOSSY_UTF8: &str = r"[\xc2-\xdf][\x1a]|[\xc2-\xc3][?]|\xed[\xa0-\xaf][\x1a?]\xed[\xb0-\xbf][\x1a?\x80-\xbf]|\xed[\xa0-\xaf][\x1a?\x80-\xbf]\xed[\xb0-\xbf][\x1a?]|[\xe0-\xef][\x1a?][\x1a\x80-\xbf]|[\xe0-\xef][\x1a\x80-\xbf][\x1a?]|[\xf0-\xf4][\x1a?][\x1a\x80-\xbf][\x1a\x80-\xbf]|[\xf0-\xf4][\x1a\x80-\xbf][\x1a?][\x1a\x80-\xbf]|[\xf0-\xf4][\x1a\x80-\xbf][\x1a\x80-\xbf][\x1a?]|\x1a";
/// The word `à`, whose no-break space was merged with the space after it.
const A_GRAVE_WORD: &str = r"\xc3 (?! |quele|quela|quilo|s )";
const TERMINAL_ESCAPE: &str = r"\x1b\[(?:\d|;)*[a-zA-Z]";

/// ftfy with its default options.
pub(super) struct Ftfy {
    badness: Regex,
    detector: Regex,
    altered: Regex,
    lossy: Regex,
    a_grave: Regex,
    terminal_escape: Regex,
    encodings: Vec<Encoding>,
}

/// A single-byte encoding.
struct Encoding {
    name: &'static str,
    /// Bytes of the non-ASCII characters, and of the character that 0x1A encodes.
    bytes: HashMap<char, u8>,
}

impl Encoding {
    fn new((name, upper): (&'static str, &'static str)) -> Self {
        let substitute = if name.starts_with("sloppy") {
            '\u{fffd}'
        } else {
            '\x1a'
        };
        let bytes = upper.chars().zip(0x80..=0xff).chain([(substitute, 0x1a)]);
        Self {
            name,
            bytes: bytes.collect(),
        }
    }

    /// Returns the bytes of the text as characters, or `None` if the encoding lacks a character.
    fn encode(&self, text: &str) -> Option<String> {
        let byte = |character: char| match character {
            '\0'..='\x19' | '\x1b'..='\x7f' => Some(character),
            _ => self.bytes.get(&character).map(|&byte| char::from(byte)),
        };
        text.chars().map(byte).collect()
    }
}

impl Ftfy {
    pub(super) fn new() -> Result<Self, Fault> {
        let with_sets = |expression: &str, sets: &[(&str, &str)]| {
            let named = sets
                .iter()
                .fold(expression.to_owned(), |text, (name, set)| text.replace(name, set));
            Regex::new(&named)
        };
        Ok(Self {
            badness: with_sets(BADNESS, &BADNESS_SETS)?,
            detector: with_sets(UTF8_DETECTOR, &UTF8_DETECTOR_SETS)?,
            altered: Regex::new(ALTERED_UTF8)?,
            lossy: Regex::new(LOSSY_UTF8)?,
            a_grave: Regex::new(A_GRAVE_WORD)?,
            terminal_escape: Regex::new(TERMINAL_ESCAPE)?,
            encodings: ENCODINGS.map(Encoding::new).into(),
        })
    }

    /// Repairs a text.
    ///
    /// # Errors
    ///
    /// Returns an error of the regular expressions if a text takes too many steps.
    pub(super) fn fix_text(&self, text: &str, html: &Html) -> Result<String, Fault> {
        let mut fixed = String::new();
        // A tag marks the text as HTML, in which references are intended. This applies from the line with the tag on.
        let mut references = true;
        for line in text.split_inclusive('\n') {
            references &= !line.contains('<');
            fixed += &self.fix_line(line, references.then_some(html))?;
        }
        Ok(fixed)
    }

    fn fix_line(&self, line: &str, html: Option<&Html>) -> Result<String, Fault> {
        let mut text = line.to_owned();
        loop {
            let before = text.clone();
            if let Some(html) = html {
                text = html.unescape_strictly(&text)?;
            }
            text = self.fix_encoding(&text)?;
            text = fix_c1_controls(&text).chars().map(without_ligature).collect();
            text = text.chars().map(in_usual_width).collect();
            text = with_unix_line_breaks(&text.chars().map(straight).collect::<String>());
            text = replaced(&self.terminal_escape, &text, |_| Ok(String::new()))?;
            text.retain(|character| !is_spurious_control(character));
            text = NormalizedString::from(text).nfc().get().to_owned();
            if text == before {
                return Ok(text);
            }
        }
    }

    fn is_bad(&self, text: &str) -> Result<bool, Fault> {
        Ok(self.badness.is_match(text)?)
    }

    /// Decodes mojibake until none is left.
    fn fix_encoding(&self, text: &str) -> Result<String, Fault> {
        let mut text = text.to_owned();
        loop {
            let fixed = self.fix_encoding_once(&text)?;
            if fixed == text {
                return Ok(text);
            }
            text = fixed;
        }
    }

    fn fix_encoding_once(&self, text: &str) -> Result<String, Fault> {
        if text.is_ascii() || !self.is_bad(text)? {
            return Ok(text.to_owned());
        }
        for encoding in &self.encodings {
            if let Some(bytes) = encoding.encode(text)
                && let Some(decoded) = self.decode(bytes, encoding)?
            {
                return Ok(decoded);
            }
        }
        let fixed = replaced(&self.detector, text, |part| {
            if part.len() < text.len() && self.is_bad(part)? {
                self.fix_encoding(part)
            } else {
                Ok(part.to_owned())
            }
        })?;
        if fixed != text {
            return Ok(fixed);
        }
        // The text may be Windows-1252 labelled as Latin-1. Windows-1252 lacks five bytes, which ftfy decodes as
        // Latin-1.
        Ok(fix_c1_controls(text))
    }

    /// Decodes a text's bytes as UTF-8 or a variant of it. Returns `None` if they are something else.
    fn decode(&self, mut bytes: String, encoding: &Encoding) -> Result<Option<String>, Fault> {
        // In Mac OS Roman, the bytes would be a dash and a space.
        if encoding.name != "macroman" && self.altered.is_match(&bytes)? {
            bytes = replaced(&self.a_grave, &bytes, |_| Ok("\u{c3}\u{a0} ".to_owned()))?;
            bytes = replaced(&self.altered, &bytes, |part| Ok(part.replace(' ', "\u{a0}")))?;
        }
        if encoding.name.starts_with("sloppy") {
            // U+FFFD in UTF-8.
            bytes = replaced(&self.lossy, &bytes, |_| Ok("\u{ef}\u{bf}\u{bd}".to_owned()))?;
        }
        // All characters are up to U+00FF.
        let bytes: Vec<u8> = bytes.chars().map(|character| character as u8).collect();
        Ok(decode_utf8_variants(&bytes))
    }
}

/// Decodes UTF-8, CESU-8 and Java's variant, which encodes U+0000 in two bytes.
fn decode_utf8_variants(mut bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    // The library treats a final newline as the end. A sequence that is cut off there counts as complete, newline
    // included.
    let is = |bytes: &[u8], at: usize, from: u8, to: u8| match bytes[at] {
        b'\n' => at + 1 == bytes.len(),
        byte => (from..=to).contains(&byte),
    };
    while let Some(start) = bytes.iter().position(|byte| matches!(byte, 0xc0 | 0xed)) {
        text += std::str::from_utf8(&bytes[..start]).ok()?;
        bytes = &bytes[start..];
        let taken = match bytes {
            [0xc0, _, ..] if is(bytes, 1, 0x80, 0x80) => {
                text.push('\0');
                2
            }
            [0xed, 0xa0..=0xaf, 0x80..=0xbf, 0xed, 0xb0..=0xbf, _, ..] if is(bytes, 5, 0x80, 0xbf) => {
                let bits = |at: usize, mask: u8, shift: u32| u32::from(bytes[at] & mask) << shift;
                let code = bits(1, 0x0f, 16) + bits(2, 0x3f, 10) + bits(4, 0x0f, 6) + bits(5, 0x3f, 0);
                text.push(char::from_u32(code + 0x1_0000)?);
                6
            }
            _ => {
                let character = bytes.get(..3)?;
                text += std::str::from_utf8(character).ok()?;
                3
            }
        };
        bytes = &bytes[taken..];
    }
    text += std::str::from_utf8(bytes).ok()?;
    Some(text)
}

/// Replaces C1 control characters by the characters of the same bytes in Windows-1252.
fn fix_c1_controls(text: &str) -> String {
    let fixed = |character: char| match character {
        '\u{80}'..='\u{9f}' => WINDOWS_1252
            .chars()
            .nth(character as usize - 0x80)
            .unwrap_or(character),
        _ => character,
    };
    text.chars().map(fixed).collect()
}

/// Returns the letters of a ligature, or the character itself.
fn without_ligature(character: char) -> String {
    let found = LIGATURES.iter().find(|(ligature, _)| *ligature == character);
    found.map_or_else(|| character.into(), |(_, letters)| (*letters).to_owned())
}

/// Returns a character in its usual width.
fn in_usual_width(character: char) -> String {
    match character {
        '\u{3000}' => " ".to_owned(),
        '\u{ff01}'..='\u{ffef}' => NormalizedString::from(character.to_string())
            .nfkc()
            .get()
            .to_owned(),
        _ => character.into(),
    }
}

fn straight(quote: char) -> char {
    match quote {
        '\u{2bc}' | '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        _ => quote,
    }
}

fn with_unix_line_breaks(text: &str) -> String {
    text.replace("\r\n", "\n")
        .replace(['\r', '\u{2028}', '\u{2029}', '\u{85}'], "\n")
}

/// Returns true for characters that ftfy removes. They are invisible, but not white space.
fn is_spurious_control(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x08' | '\x0b' | '\x0e'..='\x1f' | '\x7f' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffc}'
    )
}
