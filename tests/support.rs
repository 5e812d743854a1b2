//! Helpers of the tests: a file for each subject.

pub(crate) mod attention_statistics;
pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod crops;
pub(crate) mod custom_op;
pub(crate) mod depth;
pub(crate) mod detect;
pub(crate) mod digit_folders;
pub(crate) mod emulated;
pub(crate) mod fake;
pub(crate) mod generation;
pub(crate) mod goldens;
pub(crate) mod gpu;
pub(crate) mod html;
pub(crate) mod hub;
pub(crate) mod launcher;
pub(crate) mod naflex;
pub(crate) mod onnx;
pub(crate) mod packed;
pub(crate) mod patterns;
pub(crate) mod profile;
pub(crate) mod program;
pub(crate) mod quantize;
pub(crate) mod rt_detr;
pub(crate) mod segment;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod states;
pub(crate) mod zero_shot;

use std::path::{Path, PathBuf};

/// Returns a path below the repository's root. A binary on another machine finds it by `CARGO_MANIFEST_DIR`,
/// the folder of the package hipvit-cli.
pub(crate) fn at(path: impl AsRef<Path>) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&package)
        .ancestors()
        .nth(2)
        .expect("the package is in crates/cli");
    root.join(path)
}

/// Returns the folder of the sample images.
pub(crate) fn samples() -> PathBuf {
    at("assets/samples")
}
