//! The passes and the plan on whole Vision Transformers and other graphs.

mod float8;
mod grad;
mod interpreter;
mod named;
mod passes;
mod permutes;
mod plan;
mod recompute;
mod round_rows;
mod shards;
pub(crate) mod vit;
mod windows;
