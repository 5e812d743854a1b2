//! The failure of a rank, as all processes are told of it.

use serde::{Deserialize, Serialize};

/// Failure of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) device: String,
    pub(super) reason: String,
    /// True if RCCL reports the failure, which may be the consequence of another rank's.
    pub(super) follows: bool,
}
