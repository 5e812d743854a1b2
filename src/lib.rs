//! hipvit runs Vision Transformers from pixels to logits, on AMD GPUs, on NVIDIA GPUs and on the CPU. It loads the model directories of
//! timm and transformers, and ONNX files. It reads image files, and returns logits, labels, embeddings, patch tokens or hidden layers.
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
//! Arrays are those of [`ndarray`], which this crate re-exports.
//!
//! # Usage
//!
//! Load a model with options on a chosen device. The default is [`Device::Auto`]: the first GPU, or the CPU if there is none.
//! [`Session::no_gpu`] returns why the CPU was selected.
//!
//! ```
//! use hipvit::{DType, Device, Session};
//!
//! # fn main() -> hipvit::Result<()> {
//! let on_gpu = Session::builder().device(Device::Hip(0)).dtype(DType::F16).load("assets/tinyvit32");
//! let session = match on_gpu {
//!     Ok(session) => session,
//!     Err(error) => {
//!         eprintln!("{error}; the CPU takes over");
//!         Session::builder().device(Device::Cpu).threads(2).batch(16).load("assets/tinyvit32")?
//!     }
//! };
//! println!("{} on {}", session.name(), session.device());
//! # Ok(()) }
//! ```
//!
//! Run images from memory: encoded images, decoded images, or pixels of the model's size. [`Session::run`] takes any number of images, and
//! runs batches of at most [`Session::batch`].
//!
//! ```
//! use hipvit::image::{Limits, RgbImage, decode};
//! use hipvit::{RunInput, RunOptions, Session};
//!
//! # fn main() -> hipvit::Result<()> {
//! let session = Session::tinyvit32()?;
//! let encoded = std::fs::read("assets/samples/7.png").expect("the sample exists");
//! let decoded = decode("7.png", &encoded, Limits::default())?;
//! let grey = RgbImage::new(640, 480, vec![128; 640 * 480 * 3])?;
//! let outputs = session.run([&decoded, &grey])?;
//! assert_eq!(outputs.image(0).top(1)[0].label, "seven");
//!
//! let pixels = vec![0; 2 * 32 * 32 * 3]; // u8 [2, H, W, 3]
//! let outputs = session.run_with(RunInput::Pixels(&pixels), RunOptions::new())?;
//! assert_eq!(outputs.len(), 2);
//! # Ok(()) }
//! ```
//!
//! Run files in bounded memory. Decoding, copies and computation overlap. An image that fails gives an error at its position, and the
//! others continue.
//!
//! ```
//! use hipvit::{Pipeline, Session};
//!
//! # fn main() -> hipvit::Result<()> {
//! let session = Session::tinyvit32()?;
//! for item in Pipeline::new(&session).run(["assets/samples/7.png", "assets/absent.png"])? {
//!     match item {
//!         Ok(item) => println!("{}: {}", item.name(), item.top(1)[0].label),
//!         Err(error) if error.index().is_some() => eprintln!("{error}"), // this image
//!         Err(error) => return Err(error.into()),                        // the whole run
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! Get embeddings, patch tokens and hidden layers. Request the last two before loading the model.
//!
//! ```
//! use hipvit::Session;
//! use hipvit::image::{Limits, open};
//!
//! # fn main() -> hipvit::Result<()> {
//! let session = Session::builder().tokens(true).hidden_layers([0]).tinyvit32()?;
//! let outputs = session.run([open("assets/samples/7.png", Limits::default())?])?;
//! let image = outputs.image(0);
//! println!("{} channels", image.embedding().len());
//! println!("patch tokens {:?}", image.tokens().map(|tokens| tokens.dim())); // [patches, channels]
//! println!("after block 0 {:?}", image.hidden_layer(0).map(|tokens| tokens.dim()));
//! # Ok(()) }
//! ```
//!
//! Match on the variants of [`Error`]. Each message names the file, tensor or device.
//!
//! ```
//! use hipvit::image::{Limits, open};
//! use hipvit::image::{Error, ImageErrorKind};
//!
//! match open("assets/tinyvit32/config.json", Limits::default()) {
//!     Err(Error::Image { kind: ImageErrorKind::Unsupported, .. }) => println!("not an image"),
//!     Err(error) => println!("{error}"),
//!     Ok(image) => println!("{} x {}", image.width, image.height),
//! }
//! ```
//!
//! # Modules
//!
//! - [`tensors`]: inputs and outputs by name, as of ONNX models.
//! - [`session`]: a loaded model that is ready to run. [`outputs`]: its results. [`labels`]: the names of its classes.
//! - [`pipeline`]: from image files to results in bounded memory, with overlapped decoding, copies and computation.
//! - [`depth`]: the depth of each pixel. [`detect`]: the objects in images. [`segment`]: masks of objects at points and in boxes.
//! - [`zero_shot`]: classification of images by texts.
//! - [`evaluate`]: accuracy on labelled images. [`digits`]: samples and held-out set of the embedded model.
//! - [`image`] (the crate hipvit-image): decoding, Pillow-exact resampling, and the preprocessing rules of timm and transformers.
//! - [`model`]: the models that can be loaded, and facts about a loaded model.
//! - [`graph`] (the crate hipvit-graph): graphs of ops, passes and plans. [`exec`]: executors of plans. [`cpu`] (the crate hipvit-cpu) and
//!   [`kernels`]: the ops on the CPU and on GPUs.
//! - [`custom`]: ops that other crates define.
//! - [`timing`]: the time of each phase of a run. [`timeline`]: spans for profilers.
//! - [`hip`] (the crate hip-safe): the safe HIP layer. It opens the GPU libraries at run time.
//! - [`error`]: the error type.
//!
//! Crates that build on this one: hipvit-quantize (8 bits, 2:4), hipvit-explain (attention maps, attributions), hipvit-diagnostics
//! (validation, benchmarks), hipvit-search (search over embeddings), hipvit-serve (HTTP and gRPC), hipvit-cli (the program `hipvit`).
//!
//! # Features
//!
//! - `text` (default): texts, through the text towers of CLIP and SigLIP, and the module [`zero_shot`].
//! - `hub` (default): [`model::pull`], which downloads models from the Hugging Face hub.
//! - `gif`, `tiff`, `webp` (default): decoders of these formats. PNG, JPEG and BMP are always included.

/// Compiles the Rust code in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Runs the Rust code in docs/attention.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/attention.md")]
struct AttentionPatterns;

/// Compiles the Rust code in docs/depth.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/depth.md")]
struct Depth;

/// Compiles the Rust code in docs/detection.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/detection.md")]
struct DetectionPage;

/// Compiles the Rust code in docs/segmentation.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/segmentation.md")]
struct Segmentation;

/// Compiles the Rust code in docs/onnx.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/onnx.md")]
struct Onnx;

/// Compiles the Rust code in docs/scaling.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/scaling.md")]
struct Scaling;

/// Compiles and runs the Rust code of the guide. Code for a GPU only runs if HIPVIT_PROVIDER names one.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../docs/guide/src/preprocessing.md")]
    struct Preprocessing;
    #[doc = include_str!("../docs/guide/src/copy.md")]
    struct Copy;
    #[doc = include_str!("../docs/guide/src/patches.md")]
    struct Patches;
    #[doc = include_str!("../docs/guide/src/attention.md")]
    struct Attention;
    #[doc = include_str!("../docs/guide/src/memory.md")]
    struct Memory;
    #[doc = include_str!("../docs/guide/src/streams.md")]
    struct Streams;
    #[doc = include_str!("../docs/guide/src/graphs.md")]
    struct Graphs;
    #[doc = include_str!("../docs/guide/src/logit.md")]
    struct Logit;
    #[doc = include_str!("../docs/guide/src/backward.md")]
    struct Backward;
}

pub mod attention;
pub mod custom;
pub mod depth;
pub mod detect;
pub mod digits;
pub mod dtype;
pub mod error;
pub mod evaluate;
pub mod exec;
pub mod graph {
    //! Graphs of typed ops, and the parts of them that `hipvit inspect` prints.

    pub use hipvit_graph::*;

    pub use crate::inspection;
}
#[cfg(test)]
mod graph_tests;
pub mod inspection;
pub mod kernels;
pub mod labels;
pub mod model;
pub mod nearest;
pub mod outputs;
pub mod pipeline;
pub mod run_config;
mod safetensors_file;
pub mod segment;
pub mod session;
pub mod tensors;
pub mod timeline;
pub mod timing;
#[cfg(feature = "text")]
pub mod zero_shot;

pub use depth::DepthEstimator;
pub use detect::{Detection, Detector};
pub use error::{Error, ErrorKind, Result};
pub use exec::select::{AllReduceKind, Sparse};
pub use exec::{GraphMode, HipPreprocess, Replays};
pub use hip_safe as hip;
pub use hipvit_cpu as cpu;
pub use hipvit_graph::{float8, non_finite, op as ops, reference, tensor};
pub use hipvit_image as image;
pub use hipvit_image::ImageErrorKind;
pub use hipvit_image::{patch_grid, threads};
pub use labels::{LabelSource, Labels};
pub use ndarray;
pub use non_finite::NonFinite;
pub use outputs::{AttentionStatistics, ImageOutputs, Outputs, Prediction, Scores};
pub use pipeline::Pipeline;
pub use run_config::{ExecutionConfig, RunConfig};
pub use segment::Segmenter;
#[cfg(feature = "text")]
pub use session::TextEmbeddings;
pub use session::{
    Degrees, Device, DeviceSet, DtypeChoice, GpuOutputs, GpuTensor, MeasuredDtype, Parallelism, PinnedInput,
    ResizeOn, RunInput, RunOptions, Session, SessionBuilder,
};
pub use tensor::DType;
pub use tensors::{NamedTensors, TensorArray, TensorInfo, TensorView};
#[cfg(feature = "text")]
pub use zero_shot::{ZeroShot, ZeroShotOptions};
