//! Options of a run that do not belong to its recipe.

use std::sync::Arc;

use hipvit::exec::Collectives;
use hipvit::{DType, Device};

/// Options of a run that do not belong to its recipe.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// Device that computes the steps.
    pub device: Device,
    /// Dtype of activations and gradients.
    pub dtype: DType,
    /// Number of threads that compute on the CPU. By default one per physical core.
    pub threads: Option<usize>,
    /// True if broken images are skipped. Otherwise the first one ends the run.
    pub skip_broken: bool,
    /// Number of steps between lines of the log.
    pub log_every: u64,
    /// Name of the device in the report.
    pub device_name: String,
    /// Connections to the other ranks. `None` for a run of a single process.
    pub collectives: Option<Arc<Collectives>>,
}
