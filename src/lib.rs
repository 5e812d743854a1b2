//! hipvit runs Vision Transformers from pixel to logit: image files in; logits, labels, embeddings, patch tokens or hidden
//! layers out; models from the directories that timm and transformers write; on AMD GPUs, on NVIDIA GPUs and on the CPU.
//!
//! ```
//! use hipvit::Session;
//! use hipvit::image::{Limits, open};
//!
//! fn main() -> hipvit::Result<()> {
//!     let session = Session::load("assets/tinyvit32")?;
//!     let outputs = session.run([open("assets/samples/7.png", Limits::default())?])?;
//!     let best = &outputs.image(0).top(1)[0];
//!     println!("{:.2} %  {}", 100.0 * best.probability, best.label);
//!     assert_eq!(best.label, "seven");
//!     Ok(())
//! }
//! ```
//!
//! Arrays are those of [`ndarray`], which is re-exported.
//!
//! # Modules
//!
//! - [`session`]: a loaded model that runs; [`outputs`]: its results; [`labels`]: the names of its classes.
//! - [`pipeline`]: from image files to results in bounded memory, with decoding, copies and computation overlapped.
//! - [`image`]: decoding, Pillow-exact resampling, the resize and crop rules of timm and transformers.
//! - [`model`]: which models can be loaded, and facts about a loaded one.
//! - [`timing`]: the time of each phase of a run.
//! - [`evaluate`]: accuracy over labelled images; [`digits`]: the embedded model's samples and held-out set.
//! - [`hip`]: the safe HIP layer, over the GPU's libraries, which are opened at run time.
//! - [`error`]: the error type.
//!
//! # Features
//!
//! - `cli` (default): the program `hipvit`. Applications turn it off by `default-features = false`.
//! - `inspect`, `validate`: what the commands of these names need; part of `cli`.
//! - `parquet`: `hipvit embed -o FILE.parquet`.
//! - `libjpeg-turbo`: decodes JPEGs by libjpeg-turbo, bit for bit as Pillow does. Needs a C compiler and CMake.
//!
//! # Stability
//!
//! Semantic versioning covers what this documentation shows. Modules and items that are public but hidden from it (among
//! them `exec`, `graph`, `kernels`, `ops`, `reference`, `tensor` and `validate`) are for this project's own program, tests
//! and benchmarks; they may change in any release.

#![cfg_attr(
    not(feature = "validate"),
    allow(
        dead_code,
        unused_imports,
        reason = "some internals are used by `validate` alone"
    )
)]

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod bench;
pub mod digits;
pub mod error;
pub mod evaluate;
#[doc(hidden)]
pub mod exec;
#[doc(hidden)]
pub mod graph;
pub mod image;
#[doc(hidden)]
pub mod kernels;
pub mod labels;
pub mod model;
#[doc(hidden)]
pub mod ops;
pub mod outputs;
#[cfg(feature = "validate")]
#[doc(hidden)]
pub mod peaks;
pub mod pipeline;
#[doc(hidden)]
pub mod reference;
pub mod session;
#[cfg(any(feature = "inspect", feature = "validate"))]
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod tensor;
pub mod timing;
#[cfg(feature = "validate")]
#[doc(hidden)]
pub mod validate;

pub use error::{Error, ImageErrorKind, Result};
pub use exec::{GraphMode, HipPreprocess, Replays};
pub use hip_safe as hip;
pub use labels::Labels;
pub use ndarray;
pub use outputs::{ImageOutputs, Outputs, Prediction, Scores};
pub use pipeline::Pipeline;
pub use session::{Device, PinnedInput, ResizeOn, RunInput, RunOptions, Session, SessionBuilder};
pub use tensor::DType;
