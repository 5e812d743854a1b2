//! Escapes control characters in text from files and models, so that a terminal does not interpret them.

use std::io::{self, Write};

use crate::escape::{acts_on_terminal, escaped};

/// A writer that escapes all control characters except line breaks.
pub(crate) struct Escaping<W> {
    out: W,
    /// First bytes of a UTF-8 character whose other bytes have not been written yet.
    partial: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            partial: Vec::new(),
        }
    }

    /// Writes text, with control characters escaped.
    fn write_text(&mut self, text: &str) -> io::Result<()> {
        let is_control = |c| c != '\n' && acts_on_terminal(c);
        let text = escaped(text, is_control, |c, line| line.extend(c.escape_default()));
        self.out.write_all(text.as_bytes())
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = std::mem::take(&mut self.partial);
        rest.extend_from_slice(bytes);
        let mut chunks = rest.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.write_text(chunk.valid())?;
            let invalid = chunk.invalid();
            let is_incomplete = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && is_incomplete {
                self.partial = invalid.to_owned();
            } else {
                write!(self.out, "{}", invalid.escape_ascii())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let partial = std::mem::take(&mut self.partial);
        write!(self.out, "{}", partial.escape_ascii())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_text_is_kept() {
        let text = "name,é\n\"\u{1b}]0;title\u{7}\",\u{9b}2J\r\u{202e}€\n".as_bytes();
        let expected = "name,é\n\"\\u{1b}]0;title\\u{7}\",\\u{9b}2J\\r\\u{202e}€\n";
        // The output is the same for any split of the text into writes.
        for size in 1..=text.len() {
            let mut out = Escaping::new(Vec::new());
            for piece in text.chunks(size) {
                out.write_all(piece).unwrap();
            }
            out.flush().unwrap();
            assert_eq!(String::from_utf8(out.out).unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn invalid_utf8_is_escaped() {
        let mut out = Escaping::new(Vec::new());
        out.write_all(b"a\xff\x9bb\xe2\x82").unwrap();
        out.flush().unwrap();
        assert_eq!(out.out, br"a\xff\x9bb\xe2\x82");
    }
}
