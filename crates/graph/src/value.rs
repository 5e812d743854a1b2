//! Values of a graph: operands and results of nodes.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::provenance::Provenance;
use crate::rounding::Rounding;
use crate::tensor::Tensor;

/// Identifies a [`Value`] of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Returns the index in [`Graph::values`](crate::Graph::values).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Origin and lifetime of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueKind {
    /// Provided by the caller with each run.
    Input,
    /// A trained weight. It persists across runs, and runs may [update it](crate::Graph::update).
    Parameter,
    /// State of the model, such as a running mean. It persists across runs, and runs may [update it](crate::Graph::update).
    State,
    /// A weight that never changes, so that passes may fold it.
    Constant,
    /// Computed by a node.
    Result,
}

/// An input of a graph, which the caller provides with each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphInput {
    /// The value.
    pub value: ValueId,
    /// True if the first extent is the number of images. Otherwise the shape is the same for any batch size.
    pub per_image: bool,
}

/// Meaning of a graph's first input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstInput {
    /// Pixels in u8 or pixel values in f32.
    Images {
        /// True if the first extent is the number of images.
        per_image: bool,
    },
    /// Activations of an earlier [stage](crate::stages()), in a plan's dtype.
    Activations,
    /// Elements of any meaning, under the name of the input's value.
    Named {
        /// True if the first extent is the number of images.
        per_image: bool,
    },
}

/// An operand or result of nodes.
#[derive(Clone, Debug)]
pub struct Value {
    /// Unique, readable name. The name of a constant displays its [provenance](Self::provenance).
    pub name: String,
    /// Dtype. Activations are f32 here; a plan may choose a narrower dtype.
    pub dtype: DType,
    /// Extents at batch 1, outermost first.
    pub shape: Vec<usize>,
    /// Rounding of the elements to 8 bits if plans store the value so. Per-row rounding depends on the row's elements. See
    /// [`Float8::Stored`](crate::Float8::Stored) and [`Passes::rounded_rows`](crate::Passes::rounded_rows).
    pub rounding: Option<Rounding>,
    /// Origin of the value.
    pub kind: ValueKind,
    /// Origin of a constant's elements.
    pub provenance: Option<Provenance>,
    /// Elements of a constant, until [`Graph::release_constants`](crate::Graph::release_constants).
    pub constant: Option<Tensor>,
    /// Elements of a parameter or state before the first run.
    pub initial: Option<Tensor>,
}

impl Value {
    /// Returns true for a constant.
    pub fn is_constant(&self) -> bool {
        self.kind == ValueKind::Constant
    }

    /// Returns the names of the model's [tensors](Provenance::tensors) that a constant's elements come from.
    pub fn tensors(&self) -> Vec<&str> {
        self.provenance.as_ref().map_or(Vec::new(), Provenance::tensors)
    }

    /// Returns true for a value that persists across runs, which may update it.
    pub fn is_stateful(&self) -> bool {
        matches!(self.kind, ValueKind::Parameter | ValueKind::State)
    }

    /// Creates result number `index` of the node `node`.
    pub(crate) fn result(node: &str, index: usize, shape: Vec<usize>) -> Self {
        Self {
            name: match index {
                0 => node.to_owned(),
                _ => format!("{node}.{index}"),
            },
            dtype: DType::F32,
            shape,
            rounding: None,
            kind: ValueKind::Result,
            provenance: None,
            constant: None,
            initial: None,
        }
    }
}
