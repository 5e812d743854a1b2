//! The messages of ONNX files. Generated from `onnx.proto` by `scripts/serve-proto/generate`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]

include!("onnx.rs");
