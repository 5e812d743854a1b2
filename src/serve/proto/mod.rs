//! The protocol's messages and its gRPC service, generated from `open_inference.proto` by `scripts/serve-proto/generate`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]

include!("inference.rs");
