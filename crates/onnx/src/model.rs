//! A model as a graph, and what the caller may choose when it is loaded.

use std::collections::BTreeMap;

use hipvit_graph::Graph;

use crate::dim::Dim;
use crate::element::ElementType;

/// Options of [`load`](crate::load()).
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
