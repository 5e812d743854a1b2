//! Integration tests: one binary, with a module for each subject.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should fail there"
)]

mod adapters;
mod advise;
mod attention_statistics;
mod bad_input;
mod bench;
mod bf16_layers;
mod command_line;
mod compare;
mod compressed_tensors;
mod configs;
mod custom_op;
mod damaged_images;
mod digits;
mod distributed;
mod emu;
mod explain;
mod fuzz;
mod goldens;
mod gpu;
mod hip;
mod hub;
mod hub_server;
mod image;
mod inputs;
mod labels;
mod limits;
mod model;
mod naflex;
mod output_files;
mod outputs;
mod plan_cache;
mod processors;
mod profile;
mod pull;
mod quantize;
mod resume;
mod serve;
mod session;
mod sparse;
mod special_files;
mod texts;
mod validate;
mod weight_files;
mod words;
mod zero_shot;

use std::path::{Path, PathBuf};

/// Runs the tests in the repository's root, because they and the programs that they start use relative paths.
#[ctor::ctor(unsafe)]
fn start_in_root() {
    std::env::set_current_dir(at("")).expect("the repository's root is a folder");
}

/// Returns a path below the repository's root. A binary on another machine finds it by `CARGO_MANIFEST_DIR`,
/// the folder of the package hipvit-cli.
fn at(path: impl AsRef<Path>) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&package)
        .ancestors()
        .nth(2)
        .expect("the package is in crates/cli");
    root.join(path)
}
