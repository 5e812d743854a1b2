//! A graph's constants in the form of the CPU kernels, and the elements of its states.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::int8::Int8Weight;
use super::prepacked::PrepackedWeight;
use crate::collectives::Collectives;
use hipvit_graph::tensor::DType;
use hipvit_graph::{Graph, ValueId};

/// Weights prepacked for the GEMMs, and all other constants as f32.
pub struct Constants {
    /// Weights of linear layers and patch convolutions.
    pub(crate) weights: HashMap<ValueId, PrepackedWeight>,
    /// Weights of linear layers in int8.
    pub(crate) int8: HashMap<ValueId, Int8Weight>,
    pub(crate) values: HashMap<ValueId, Vec<f32>>,
    /// Precision of linear layers and attention.
    pub(crate) dtype: DType,
    /// Connections to the other ranks of a training step.
    pub(crate) collectives: Option<Arc<dyn Collectives>>,
}

/// Elements of parameters and states, which persist across runs.
pub type States = HashMap<ValueId, Vec<f32>>;

/// Returns the elements of a graph's parameters and states before the first run.
pub fn initial_states(graph: &Graph) -> States {
    let initial = |id| Some((id, graph.value(id).initial.as_ref()?.to_f32().into_owned()));
    graph.ids().filter_map(initial).collect()
}

/// Form of a constant in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// A [`PrepackedWeight`] of this dtype.
    Weight(DType),
    Int8,
    Values,
}

impl fmt::Debug for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constants")
            .field("weights", &self.weights.len())
            .field("int8", &self.int8.len())
            .field("values", &self.values.len())
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}
