//! A rank of a tensor-parallel model or of a training step, from the view of its GPU's executor.

use std::sync::Arc;

use super::direct::DirectRank;
use super::exchanges::RankComms;
use crate::error::Error;
use crate::hip::Comm;

/// Decisions that all ranks make together.
pub(super) trait Agree: Send + Sync {
    /// Waits until all ranks have called it equally often. Returns true if all passed true. Returns false once a rank has failed.
    fn agree(&self, mine: bool) -> bool;
}

/// A rank of a tensor-parallel model.
pub(super) struct Rank {
    /// Index of the rank's GPU among the model's GPUs.
    pub(super) number: usize,
    /// Number of GPUs of the model.
    pub(super) count: usize,
    /// Name of the GPU in errors.
    pub(super) gpu: String,
    pub(super) on: RankStream,
    pub(super) agreement: Arc<dyn Agree>,
}

/// A rank's stream, and the all-reduce on it.
#[derive(Clone, Debug)]
pub(super) struct RankStream {
    pub(super) comm: Comm,
    /// Set if a builtin kernel sums small messages.
    pub(super) direct: Option<DirectRank>,
    /// Set for a rank of a training step.
    pub(super) training: Option<Arc<RankComms>>,
    /// True if several runs are in flight on the stream.
    pub(super) several: bool,
}

impl Rank {
    /// Returns an error of the rank.
    pub(super) fn error(&self, reason: impl ToString) -> Error {
        Error::Rank {
            rank: self.number,
            ranks: self.count,
            device: self.gpu.clone(),
            reason: reason.to_string(),
        }
    }
}
