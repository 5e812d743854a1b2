//! rocBLAS, hipBLASLt and MIOpen, checked against plain loops in f64 on the same rounded inputs.
#![allow(
    clippy::expect_used,
    clippy::undocumented_unsafe_blocks,
    reason = "a test, whose calls are C's with arguments of its own making that live until the stream is synchronised"
)]

mod gpu;
mod hipblaslt;
mod miopen;
mod rocblas;
