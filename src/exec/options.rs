//! Options of an executor.

use std::sync::Arc;

use super::collectives::Collectives;
use super::replays::GraphMode;
use super::select::{SelectOptions, Store};
use crate::image::Preprocess;
use crate::tensor::DType;

/// Options of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// Compute precision.
    pub dtype: DType,
    /// Number of threads for work on the host. By default one per physical core near the device.
    pub threads: Option<usize>,
    /// Replay of captured graphs on a GPU.
    pub graphs: GraphMode,
    /// Options of kernel selection on a GPU.
    pub select: SelectOptions,
    /// Measured choices of this machine. By default those in the user's cache.
    pub tuned: Option<Store>,
    /// Rule by which a GPU resizes images. By default the host resizes them.
    pub resize: Option<Preprocess>,
    /// Connections to the other ranks, for graphs with exchanges between ranks. One GPU or the CPU of each rank computes such a graph.
    pub collectives: Option<Arc<Collectives>>,
}

impl ExecutorOptions {
    /// Returns the default options with this dtype.
    pub fn new(dtype: DType) -> Self {
        Self {
            dtype,
            threads: None,
            graphs: GraphMode::default(),
            select: SelectOptions::default(),
            tuned: None,
            resize: None,
            collectives: None,
        }
    }
}
