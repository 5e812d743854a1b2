//! Kernels in HIP C++, compiled by clang and executed; results are checked against Rust code.
//!
//! Without a clang that targets AMD GPUs they are skipped, with a message; with `HIPVIT_REQUIRE_AMD_CLANG=1` they
//! fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod arithmetic;
mod control;
mod faults;
mod gpu;
mod lanes;
mod matrix;
mod memory;
mod objects;
mod profile;
mod taint;
