//! What `--json` prints: one object per line.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use hipvit::{DType, Session};
use serde::Serialize;

use super::{acts_on_terminal, escaped};

/// The results of an image or a text, the model and the device. `R`'s fields come last.
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

/// Prints `value` as one line of JSON. Numbers that are NaN or infinite, which JSON cannot write, are `null`.
pub fn write(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    // Not `to_writer`, whose errors hide that a pipe was closed.
    let line = serde_json::to_string(value)?;
    writeln!(out, "{}", ascii_controls(&line))?;
    Ok(())
}

/// The text as it is within the quotes of a JSON string, on one line whatever it contains.
pub fn json_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    ascii_controls(&quoted[1..quoted.len() - 1])
}

/// Escapes the control characters that JSON allows in strings, which are nowhere else: terminals act on them.
fn ascii_controls(line: &str) -> String {
    escaped(line, acts_on_terminal, |c, line| {
        // None of them needs a surrogate pair. A string takes whatever is written.
        let _ = write!(line, "\\u{:04x}", u32::from(c));
    })
}
