//! The integration tests, one module per subject, in one binary.

mod image;
