//! JSON lines that `--json` prints.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use hipvit::{DType, Session};
use serde::Serialize;

use super::{acts_on_terminal, escaped};

/// Results of an image or a text, with the model and the device. The fields of `R` come last.
#[derive(Debug, Serialize)]
pub struct Record<'a, R> {
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
    pub fn new(session: &'a Session, image: &'a str, results: R) -> Self {
        Self {
            image: Some(image),
            text: None,
            model: session.name(),
            device: session.devices().to_string(),
            dtype: session.dtype(),
            results,
        }
    }

    pub fn of_text(session: &'a Session, text: &'a str, results: R) -> Self {
        Self {
            image: None,
            text: Some(text),
            ..Self::new(session, text, results)
        }
    }
}

/// Prints `value` as one line of JSON. NaN and infinite numbers become `null`, because JSON has none.
pub fn write(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    // The errors of `to_writer` hide a closed pipe.
    let line = serde_json::to_string(value)?;
    writeln!(out, "{}", ascii_controls(&line))?;
    Ok(())
}

/// Returns the text as it appears between the quotes of a JSON string, always on one line.
pub fn json_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    ascii_controls(&quoted[1..quoted.len() - 1])
}

/// Escapes the control characters that JSON allows in strings, because a terminal would interpret them.
fn ascii_controls(line: &str) -> String {
    escaped(line, acts_on_terminal, |c, line| {
        // These characters need no surrogate pairs. Writing to a string cannot fail.
        let _ = write!(line, "\\u{:04x}", u32::from(c));
    })
}
