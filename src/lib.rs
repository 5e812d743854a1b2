//! hipvit runs Vision Transformers from pixel to logit.

pub mod error;
pub mod image;

pub use error::{Error, Result};
