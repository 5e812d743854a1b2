//! The passes and the plan on whole Vision Transformers.

mod passes;
mod plan;
pub(in crate::graph) mod vit;
