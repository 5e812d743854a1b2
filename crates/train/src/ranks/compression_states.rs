//! The states of a compression of gradients, as the graph of a step collects them.

use std::collections::BTreeMap;

use hipvit::graph::ValueId;

/// States of the compression with their next values.
#[derive(Debug, Default)]
pub(super) struct Updates {
    pub(super) states: Vec<(ValueId, ValueId)>,
    /// Shapes of the states of all ranks together, by their names.
    pub(super) divided: BTreeMap<String, Vec<usize>>,
}
