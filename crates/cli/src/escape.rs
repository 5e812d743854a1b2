//! Escapes characters that a terminal would interpret.

/// Escapes line breaks and other control characters, which can occur in file names and labels.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, acts_on_terminal, |c, line| line.extend(c.escape_default()))
}

/// Escapes all control characters of a text except line breaks.
pub(crate) fn lines(text: &str) -> String {
    let acts = |c| c != '\n' && acts_on_terminal(c);
    escaped(text, acts, |c, line| line.extend(c.escape_default()))
}

/// Replaces each character for which `escaped` returns true with the output of `escape`.
pub(crate) fn escaped(
    text: &str,
    escaped: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if escaped(c) {
            escape(c, &mut line);
        } else {
            line.push(c);
        }
    }
    line
}

/// Returns true if a terminal would interpret the character instead of printing it. These are control characters, line
/// separators and marks that change the direction of text.
pub(crate) fn acts_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
