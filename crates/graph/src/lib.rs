//! Vision Transformers as graphs of typed ops over named values, with passes, memory plans and a reference interpreter. This crate accesses
//! no devices and no files.
//!
//! A model builder creates a [`Graph`]. [`optimize`] rewrites it. A [`Plan`](plan::Plan) fixes the batch size and places every activation,
//! and an executor runs the plan. [`interpret`] runs a graph in double precision, to check executors.

// Tests that other crates include use this name for the crate.
#[cfg(test)]
extern crate self as hipvit_graph;

mod arena;
mod array;
mod backward;
pub mod cases;
pub mod compact_moments;
mod divide;
mod dtype;
mod error;
mod evaluate;
pub mod float8;
pub mod grad;
mod graph;
mod inputs;
pub mod int8;
mod interpreter;
mod matmul;
pub mod non_finite;
pub mod op;
mod optimizations;
mod optimize;
mod overlap;
mod passes;
pub mod pattern;
mod pixels;
pub mod plan;
mod precision;
mod provenance;
mod recompute;
pub mod reference;
mod rewrite;
mod rounding;
mod shard;
mod softmax;
mod stages;
pub mod strided;
pub mod tensor;
#[cfg(test)]
mod tests;
mod tolerance;
mod training;
mod updates;
mod value;
mod verify;

pub use hipvit_image::patch_grid;

pub use divide::ParameterDivision;
pub use dtype::DType;
pub use error::{Error, Result};
pub use evaluate::evaluate;
pub use grad::grad;
pub use graph::{Graph, Node, OutputKind, Role, matrix};
pub use interpreter::{Interpreter, interpret, interpret_shards, interpret_stage_shards, interpret_stages};
pub use optimizations::Optimizations;
pub use optimize::{Float8, PassReport, Passes, optimize};
pub use overlap::overlap_exchanges;
pub use passes::float8::store as store_float8;
pub use provenance::{Change, Layout, Provenance};
pub use recompute::{Recomputation, recompute};
pub use rewrite::{Rewriter, Rewritten, rewrite};
pub use shard::{shard, shard_stages};
pub use stages::{Stage, stages};
pub use training::prepare_training;
pub use updates::updated_in_place;
pub use value::{GraphInput, Value, ValueId, ValueKind};
