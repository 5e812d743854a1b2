//! The integration tests: one binary, a module a subject.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should fail there"
)]

mod bad_input;
mod command_line;
mod digits;
mod goldens;
mod hip;
mod image;
mod model;
mod session;

use std::path::{Path, PathBuf};

/// A path below the package's root.
fn at(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
