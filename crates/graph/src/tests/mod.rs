//! The passes and the plan on whole Vision Transformers.

mod float8;
mod grad;
mod interpreter;
mod passes;
mod permutes;
mod plan;
mod recompute;
mod round_rows;
mod shards;
pub(crate) mod vit;
