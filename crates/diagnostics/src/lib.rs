//! Diagnostics of correctness and speed on a machine:
//!
//! - [`validate`] compares every op with a reference in f64.
//! - [`mod@bench`] times models.
//! - [`peaks`] measures what the hardware reaches.
//! - [`profile`] shows where the time of a run goes.
//! - [`advise`] predicts models on other hardware.
//! - [`certificate`] records a validation.

pub mod advise;
pub mod bench;
pub mod certificate;
pub mod inspection;
pub mod peaks;
pub mod profile;
pub mod table;
pub mod validate;
