//! What `--json` prints: one object per line.

use std::io::Write;

use anyhow::Result;
use hipvit::{DType, Session};
use serde::Serialize;

/// One image's results, model and device. `R`'s fields come last.
#[derive(Debug, Serialize)]
pub struct Record<'a, R> {
    image: &'a str,
    model: &'a str,
    device: String,
    dtype: DType,
    #[serde(flatten)]
    results: R,
}

impl<'a, R: Serialize> Record<'a, R> {
    pub fn new(session: &'a Session, image: &'a str, results: R) -> Self {
        Self {
            image,
            model: session.name(),
            device: session.device().to_string(),
            dtype: session.dtype(),
            results,
        }
    }
}

/// Prints `value` as one line of JSON.
pub fn write(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    // Not `to_writer`, whose errors hide that a pipe was closed.
    let line = serde_json::to_string(value)?;
    writeln!(out, "{line}")?;
    Ok(())
}
