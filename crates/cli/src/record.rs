//! The JSON lines that `--json` prints, one object per line.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use hipvit::{DType, Session};
use serde::Serialize;

use super::escape::{acts_on_terminal, escaped};

/// Results of one image or one text, with the model and the device. Serialization appends the fields of `results`.
#[derive(Debug, Serialize)]
pub(crate) struct Record<'a, R> {
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    model: &'a str,
    device: String,
    dtype: DType,
    #[serde(flatten)]
    results: R,
}

impl<'a, R: Serialize> Record<'a, R> {
    /// Creates the record of an image.
    pub(crate) fn new(session: &'a Session, image: &'a str, results: R) -> Self {
        Self {
            image: Some(image),
            text: None,
            model: session.name(),
            device: session.devices().to_string(),
            dtype: session.dtype(),
            results,
        }
    }

    /// Creates the record of a text.
    pub(crate) fn of_text(session: &'a Session, text: &'a str, results: R) -> Self {
        Self {
            image: None,
            text: Some(text),
            ..Self::new(session, text, results)
        }
    }
}

/// Writes `value` to `out` as one line of JSON. NaN and infinite numbers become `null`, because JSON cannot represent them.
pub(crate) fn write(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    // `serde_json::to_writer` would wrap the I/O error, so that a closed pipe is not recognised.
    let line = serde_json::to_string(value)?;
    writeln!(out, "{}", ascii_controls(&line))?;
    Ok(())
}

/// Escapes a text for a JSON string, and returns it without the quotes. The result has no line breaks.
pub(crate) fn json_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    ascii_controls(&quoted[1..quoted.len() - 1])
}

/// Escapes the control characters that JSON permits unescaped but a terminal would interpret.
fn ascii_controls(line: &str) -> String {
    escaped(line, acts_on_terminal, |c, line| {
        // All these characters are below U+10000, so no surrogate pair is needed. Writing to a string cannot fail.
        let _ = write!(line, "\\u{:04x}", u32::from(c));
    })
}
