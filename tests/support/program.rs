//! The program as a process, and what it printed.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `hipvit` with `args`.
pub(crate) fn hipvit(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns what the program wrote to standard output.
pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Returns what the program wrote to standard error.
pub(crate) fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Parses the only line that a command printed.
pub(crate) fn json(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).unwrap()
}
