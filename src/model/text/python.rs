//! Implements methods of Python's `str` where Rust's differ, and CLIP's mapping of bytes to characters.

/// Returns true for white space in Python: Unicode's, and the four separators of ASCII.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

/// Joins the words of a text with single spaces.
pub(super) fn single_spaced(text: &str) -> String {
    let words: Vec<&str> = text.split(is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns the characters of the 256 bytes in byte-level vocabularies.
///
/// A visible byte is its own character. The other bytes are characters from U+0100 on.
pub(super) fn byte_characters() -> Vec<char> {
    let mut others = '\u{100}'..;
    let character = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
        _ => others.next(),
    };
    (0..=255).filter_map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::{byte_characters, single_spaced};

    #[test]
    fn spaces_are_those_of_python() {
        assert_eq!(
            single_spaced(" a\u{1c}b\u{a0}\u{3000}\n c\u{200b}"),
            "a b c\u{200b}"
        );
    }

    #[test]
    fn bytes_have_distinct_visible_characters() {
        let characters = byte_characters();
        assert_eq!(characters.len(), 256);
        assert_eq!(characters[usize::from(b'a')], 'a');
        assert_eq!(characters[usize::from(b' ')], 'Ġ');
    }
}
