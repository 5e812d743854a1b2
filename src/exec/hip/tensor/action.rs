//! Actions that all ranks take in the same order.

use std::sync::Arc;

use super::run::Run;

/// Next action of all ranks.
#[derive(Clone)]
pub(super) enum Action {
    /// Submit a run.
    Submit(Arc<Run>),
    /// Wait for the oldest run in flight.
    Finish,
}
