//! The failure of a rank, as it is sent to all processes.

use serde::{Deserialize, Serialize};

/// Failure of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) device: String,
    pub(super) reason: String,
    /// True if RCCL reported the failure, so that another rank's failure may have caused it.
    pub(super) follows: bool,
}
