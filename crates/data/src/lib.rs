//! Datasets, augmentation and loading for training vision models.
//!
//! | item | purpose |
//! | --- | --- |
//! | [`open`] | finds a dataset's layout: image folders, ImageNet, idx, WebDataset, Parquet, lists of images with captions, maps or objects |
//! | [`augment`] | random transforms, bit for bit as torchvision and timm on Pillow images |
//! | [`Sampler`] | order of an epoch, divided among ranks |
//! | [`Loader`] | decodes and augments on threads, ahead of the consumer |
//! | [`mix`] | mixup and CutMix with soft targets |
//! | [`random`] | counter-based random numbers |
//!
//! Equal seeds give equal batches, whatever the number of threads, after a resume, and for a rank of several as for
//! one rank's consecutive batches. The crate depends on neither models nor devices.

/// Compiles the Rust code in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod augment;
mod batch;
mod dataset;
mod error;
mod loader;
mod map;
pub mod mix;
pub mod random;
mod sampler;

pub use augment::{Augmentation, Prepare, Transform};
pub use batch::{Batch, Broken, DrawnImages};
#[cfg(feature = "parquet")]
pub use dataset::Parquet;
pub use dataset::{
    Annotated, Annotations, Content, Dataset, ImageFolder, InMemory, Objects, Pairs, Splits, WebDataset,
    open, open_idx,
};
pub use error::{Error, Result};
pub use loader::{Loader, LoaderOptions, OnBroken, Share};
pub use map::Map;
pub use sampler::{Position, Remainder, Sample, Sampler};
