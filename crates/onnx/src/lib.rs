//! Reads ONNX models as graphs of hipvit's typed ops.
//!
//! [`load`] reads a file and its external data, and returns a [`Model`]: the [`Graph`](hipvit_graph::Graph) with the names, element types
//! and extents of its inputs and outputs. There is no second interpreter. Integers and shapes are computed while the model is imported, and an
//! extent is a number or a multiple of the batch size ([`Dim`]).
//!
//! Files may be hostile: an invalid file is an [`Error`] that names the node or tensor at fault.

mod builder;
mod context;
mod control_flow;
mod conversion;
mod counted;
mod dim;
mod element;
mod error;
mod folding;
mod importer;
mod initializer;
mod integers;
mod limits;
mod load;
mod mapped;
mod model;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
mod mutations;
mod ops;
mod program;
mod proto;
mod ramp;
mod recognize;
mod shape;
mod source;
mod value;

use std::path::Path;

pub use dim::Dim;
pub use element::ElementType;
pub use error::{Error, Problem};
pub use load::{Declared, Extent};
pub use model::{Counted, Info, Model, Options};

/// Loads an ONNX model. The file must not be truncated or rewritten in place while the model is in use.
///
/// # Errors
///
/// - [`Error::Io`] if the file cannot be read.
/// - [`Error::Invalid`] if the file is not a valid model.
/// - [`Error::Extents`] if extents of inputs have no number.
/// - [`Error::Problems`] with all nodes that are not supported.
pub fn load(path: &Path, options: &Options) -> Result<Model, Error> {
    let (source, bytes) = source::Source::open(path)?;
    load::load(&source, bytes, options)
}

/// Returns the inputs that an ONNX file declares, without loading the model.
///
/// # Errors
///
/// - [`Error::Io`] if the file cannot be read.
/// - [`Error::Invalid`] if the file is not a valid model.
pub fn inputs(path: &Path) -> Result<Vec<Declared>, Error> {
    let (source, bytes) = source::Source::open(path)?;
    load::inputs(&source, bytes)
}

/// Loads an ONNX model that is in memory and has no external data. `name` is used in errors.
///
/// # Errors
///
/// Returns the errors of [`load`], except for [`Error::Io`].
pub fn load_bytes(name: &str, bytes: impl Into<bytes::Bytes>, options: &Options) -> Result<Model, Error> {
    let source = source::Source::in_memory(name);
    load::load(&source, bytes.into(), options)
}
