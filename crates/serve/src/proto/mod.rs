//! The messages and gRPC services of the Open Inference Protocol, and of gRPC's health checking protocol. Generated from the `.proto`
//! files by `scripts/serve-proto/generate`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]

include!("inference.rs");

/// Messages and service of gRPC's health checking protocol.
pub mod health {
    include!("health.rs");
}
