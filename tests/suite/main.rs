//! The integration tests: one binary, a module per subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should fail there"
)]

mod model;
