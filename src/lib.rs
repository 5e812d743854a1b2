//! hipvit runs Vision Transformers from pixel to logit.

pub mod error;
pub mod graph;
pub mod image;
pub mod ops;

pub use error::{Error, Result};
