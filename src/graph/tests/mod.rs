//! The passes and the plan on whole Vision Transformers.

mod interpreter;
mod passes;
mod plan;
pub(crate) mod vit;
