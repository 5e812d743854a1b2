//! hipvit runs Vision Transformers from pixel to logit: an image file goes in, logits, labels or an embedding come
//! out, through the model directories that timm and transformers write.
//!
//! ```
//! use hipvit::Session;
//! use hipvit::image::{Limits, open};
//!
//! fn main() -> hipvit::Result<()> {
//!     let session = Session::load("assets/tinyvit32")?;
//!     let images = [open("assets/samples/7.png", &Limits::default())?];
//!     let outputs = session.run(&images)?;
//!     if let Some(logits) = outputs.logits() {
//!         let best = &session.scores().top(logits.row(0), 1, session.labels())[0];
//!         assert_eq!(best.label, "seven");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Arrays are [`ndarray`]'s, which is re-exported.
//!
//! # The rooms
//!
//! - [`session`]: a loaded model that runs; [`pipeline`]: files to results in bounded memory; [`outputs`], [`timing`].
//! - [`image`]: decoding, Pillow-exact resampling, the libraries' resize and crop rules.
//! - [`model`]: configurations and weights → [`graph`]: typed ops, passes, memory plan → [`exec`]: runs it.
//! - [`ops`]: one file an op; [`mod@reference`]: the oracle in f64 that they are held against.
//! - [`validate`]: every op of a device against the oracle.
//! - [`hip`]: the safe layer over the GPU's libraries, which are opened at run time.
//! - [`evaluate`]: accuracy over labelled images; [`digits`]: the embedded model's samples and held-out set.

pub mod digits;
pub mod error;
pub mod evaluate;
pub mod exec;
pub mod graph;
pub mod image;
#[doc(hidden)]
pub mod kernels;
pub mod labels;
pub mod model;
pub mod ops;
pub mod outputs;
pub mod pipeline;
pub mod reference;
pub mod session;
pub mod tensor;
pub mod timing;
pub mod validate;

pub use error::{Error, Result};
pub use exec::GraphMode;
pub use hip_safe as hip;
pub use ndarray;
pub use outputs::{Outputs, Prediction, Scores};
pub use session::{Device, ResizeOn, Session, SessionBuilder};
pub use tensor::DType;
