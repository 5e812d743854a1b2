//! hipvit runs Vision Transformers from pixel to logit.

pub mod error;
pub mod exec;
pub mod graph;
pub mod image;
pub mod model;
pub mod ops;
pub mod reference;

pub use error::{Error, Result};
