//! Reason why the results of a stream are undefined.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

/// Failure of a stream: a communicator on it was aborted, so its results are undefined. Set once; every wait returns it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamFailure(Arc<OnceLock<CommunicatorFailure>>);

/// Fields of [`Error::Communicator`].
#[derive(Clone, Debug)]
pub(crate) struct CommunicatorFailure {
    pub(crate) device: String,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) reason: String,
}

impl CommunicatorFailure {
    pub(crate) fn error(&self) -> Error {
        let Self {
            device,
            rank,
            ranks,
            reason,
        } = self.clone();
        Error::Communicator {
            device,
            rank,
            ranks,
            reason,
        }
    }
}

impl StreamFailure {
    /// Sets the failure. Returns false if it is already set.
    pub(crate) fn set(&self, failure: CommunicatorFailure) -> bool {
        self.0.set(failure).is_ok()
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |failure| Err(failure.error()))
    }
}
