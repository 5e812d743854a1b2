//! A unit of the search: layers that get one precision.

use std::collections::BTreeSet;

/// Layers that read one value, and the tensors that change if the layers are quantised.
pub(super) struct Unit {
    pub(super) layers: BTreeSet<String>,
    pub(super) tensors: BTreeSet<String>,
    /// `[tokens, input channels, output channels]` of each GEMM.
    pub(super) sizes: Vec<[usize; 3]>,
}
