//! The passes and the plan on whole Vision Transformers.

mod float8;
mod hidden;
mod interpreter;
mod mixers;
mod passes;
mod plan;
mod relative;
pub(crate) mod rotary;
mod round_rows;
mod shards;
pub(crate) mod vit;
