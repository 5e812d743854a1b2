//! A step of a run that is submitted and not finished.

use hipvit_data::Batch;

/// A submitted step.
#[derive(Debug)]
pub(super) struct PendingStep {
    pub(super) batch: Batch,
    pub(super) lr: f64,
}
