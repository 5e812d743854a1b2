//! Resolves HTML character references, as Python's `html.unescape` does.

use std::collections::HashMap;

use fancy_regex::Regex;

use super::replace::{Fault, replaced};
use super::tables;

/// References that Python looks for. Names have at most 32 characters.
const REFERENCE: &str = r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\x0c <&#;]{1,32};?)";
/// References that ftfy resolves. They end with a semicolon.
const STRICT_REFERENCE: &str = "&#?[0-9A-Za-z]{1,24};";

/// Named entities, and the expressions that find references.
pub(super) struct Html {
    /// Characters by entity name. The name includes the semicolon, if it has one.
    entities: HashMap<&'static str, String>,
    reference: Regex,
    strict: Regex,
}

impl Html {
    pub(super) fn new() -> Result<Self, Fault> {
        let character = |code: &str| u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
        let lines = include_str!("entities.txt").lines();
        let entities = lines.filter_map(|line| {
            let (name, codes) = line.split_once(' ')?;
            Some((name, codes.split(' ').filter_map(character).collect()))
        });
        Ok(Self {
            entities: entities.collect(),
            reference: Regex::new(REFERENCE)?,
            strict: Regex::new(STRICT_REFERENCE)?,
        })
    }

    /// Resolves all references as `html.unescape` does, including names without a semicolon and names that begin a
    /// longer word.
    pub(super) fn unescape(&self, text: &str) -> Result<String, Fault> {
        replaced(&self.reference, text, |reference| Ok(self.resolve(reference)))
    }

    /// Resolves the references that ftfy considers intended: those with a semicolon, including names in capitals.
    pub(super) fn unescape_strictly(&self, text: &str) -> Result<String, Fault> {
        replaced(&self.strict, text, |reference| {
            let name = &reference[1..];
            if let Some(characters) = self.entities.get(name) {
                return Ok(characters.clone());
            }
            let resolved = self.unescape(reference)?;
            if name.starts_with('#') {
                // Keep the text if only a part of it was a reference.
                return Ok(if resolved.contains(';') {
                    reference.to_owned()
                } else {
                    resolved
                });
            }
            let lower = name.to_ascii_lowercase();
            let in_capitals = lower.to_ascii_uppercase() == name && resolved == reference;
            Ok(match self.entities.get(lower.as_str()) {
                Some(characters) if in_capitals => characters.to_uppercase(),
                _ => reference.to_owned(),
            })
        })
    }

    fn resolve(&self, reference: &str) -> String {
        let name = &reference[1..];
        if let Some(number) = name.strip_prefix('#') {
            return numbered(number.trim_end_matches(';'));
        }
        if let Some(characters) = self.entities.get(name) {
            return characters.clone();
        }
        // The longest name that is a prefix of the word.
        let ends = name
            .char_indices()
            .map(|(end, _)| end)
            .skip(2)
            .collect::<Vec<_>>();
        for end in ends.into_iter().rev() {
            if let Some(characters) = self.entities.get(&name[..end]) {
                return format!("{characters}{}", &name[end..]);
            }
        }
        reference.to_owned()
    }
}

/// Returns the character of a number, which may be hexadecimal. Applies HTML5's replacements; returns nothing for an
/// invalid character.
fn numbered(number: &str) -> String {
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    // Parsing fails only if the number is too large.
    let code = code.unwrap_or(u32::MAX);
    let character = match code {
        0 => Some('\u{fffd}'),
        0x0d => Some('\r'),
        0x80..=0x9f => tables::WINDOWS_1252.chars().nth(code as usize - 0x80),
        0x01..=0x08 | 0x0b | 0x0e..=0x1f | 0x7f | 0xfdd0..=0xfdef => None,
        _ if code & 0xfffe == 0xfffe && code <= 0x10_ffff => None,
        _ => Some(char::from_u32(code).unwrap_or('\u{fffd}')),
    };
    character.into_iter().collect()
}
