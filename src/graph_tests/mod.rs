//! Graphs of whole models through the passes, shards and stages.

mod hidden;
mod hiera;
mod mixers;
mod relative;
pub(crate) mod rotary;
mod shards;
mod swin;
#[path = "../../crates/graph/src/tests/vit.rs"]
pub(crate) mod vit;
