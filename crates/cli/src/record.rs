//! Output of `--json`: one JSON object per line.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use hipvit::{DType, Session};
use serde::Serialize;

use super::escape::{acts_on_terminal, escaped};

/// Results of one image or one text, with the model and the device. The fields of `results` are flattened into the JSON object.
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
    pub(crate) fn for_text(session: &'a Session, text: &'a str, results: R) -> Self {
        Self {
            image: None,
            text: Some(text),
            ..Self::new(session, text, results)
        }
    }
}

/// Writes `value` to `out` as one line of JSON. NaN and infinities become `null`, because JSON cannot represent them.
pub(crate) fn write(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    // `serde_json::to_writer` would wrap I/O errors, so `is_broken_pipe` would not detect a closed pipe.
    let line = serde_json::to_string(value)?;
    writeln!(out, "{}", escape_controls(&line))?;
    Ok(())
}

/// Returns `text` escaped for a JSON string, without quotes. The result has no line breaks.
pub(crate) fn escape_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    escape_controls(&quoted[1..quoted.len() - 1])
}

/// Escapes characters that are valid in JSON strings but that a terminal would interpret.
fn escape_controls(line: &str) -> String {
    escaped(line, acts_on_terminal, |c, line| {
        // All of these characters are below U+10000, so one escape suffices. Writing to a string cannot fail.
        let _ = write!(line, "\\u{:04x}", u32::from(c));
    })
}
