//! Integration tests: one binary. A test's module says where it runs: on the CPU (`host`), on the fake GPU
//! (`fake`), on emulated AMD GPUs (`emulated`), or on the GPU that `HIPVIT_TEST_DEVICE` names (`gpu`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should fail there"
)]

mod emulated;
mod fake;
mod gpu;
mod host;
mod support;

/// Runs the tests in the repository's root, because they and the programs that they start use relative paths.
#[ctor::ctor(unsafe)]
fn start_in_root() {
    std::env::set_current_dir(support::at("")).expect("the repository's root is a folder");
}
