//! Reads ONNX models as graphs of hipvit's typed ops.
//!
//! [`load`] reads a file and its external data, and returns a [`Model`]: the [`Graph`] with the names, element types and extents of its
//! inputs and outputs. There is no second interpreter. Integers and shapes are computed while the model is imported, and an extent is
//! a number or a multiple of the batch size ([`Dim`]).
//!
//! Files may be hostile: an invalid file is an [`Error`] that names the node or tensor at fault.

mod builder;
mod context;
mod control_flow;
mod counted;
mod dim;
mod element;
mod error;
mod importer;
mod initializer;
mod integers;
mod limits;
mod load;
mod mapped;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
mod mutations;
mod ops;
mod program;
mod proto;
mod ramp;
mod recognize;
mod source;
mod value;

use std::collections::BTreeMap;
use std::path::Path;

use hipvit_graph::Graph;

pub use dim::Dim;
pub use element::ElementType;
pub use error::{Error, Problem};
pub use load::{Declared, Extent};

/// Options of [`load`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Numbers for extents of inputs that have a name in the file, such as `height`. An extent without a name is
    /// called `<input>.<axis>`.
    ///
    /// One named extent may have no number: the first extent of inputs, which becomes the batch size.
    pub extents: BTreeMap<String, usize>,
    /// Keep the nodes as the file has them. Otherwise attention, activations and biases in several steps become one op each.
    pub keep_nodes: bool,
    /// The caller puts pixels before the first input, by [`Graph::with_pixels`]. Its patch embedding then becomes an op that reads them.
    pub pixels: bool,
}

/// A model as a graph.
#[derive(Debug)]
pub struct Model {
    /// The graph. Its inputs and outputs have the names of the file.
    pub graph: Graph,
    /// Inputs, in the order of the file.
    pub inputs: Vec<Info>,
    /// Outputs, in the order of the file.
    pub outputs: Vec<Info>,
    /// Version of ONNX's own operator set.
    pub opset: i64,
    /// Name and version of the program that wrote the file.
    pub producer: String,
    /// The file's own metadata.
    pub metadata: BTreeMap<String, String>,
    /// Number of nodes of each operator, with those of functions.
    pub operators: BTreeMap<String, usize>,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name in the file.
    pub name: String,
    /// Element type in the file.
    pub element: ElementType,
    /// Extents.
    pub dims: Vec<Dim>,
    /// The axis of an output whose extent depends on the data, such as the results of `NonMaxSuppression`. [`dims`](Self::dims) has its largest
    /// extent.
    pub counted: Option<Counted>,
}

/// An axis of an output whose extent depends on the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Index of the axis.
    pub axis: usize,
    /// Name of the graph's output with the extent. It is not an output of the file.
    pub output: String,
}

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
