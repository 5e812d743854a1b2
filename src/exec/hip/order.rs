//! The order of a pipeline stage's runs.

use parking_lot::Mutex;

use crate::error::Result;
use crate::hip::{Event, Stream};

/// Order of the runs of a pipeline stage, which computes one after the other.
///
/// If a stage computed several batches at once, all of them would leave it late and at the same time, and the next stages would
/// be idle meanwhile.
#[derive(Default)]
pub(super) struct RunOrder {
    /// Completion event of the last submitted run.
    last_run: Mutex<Option<Event>>,
}

impl RunOrder {
    /// Submits `work` to `stream` after the last submitted run.
    pub(super) fn submit_next<T>(&self, stream: &Stream, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut last_run = self.last_run.lock();
        if let Some(last_run) = &*last_run {
            stream.wait(last_run)?;
        }
        let submitted = work()?;
        *last_run = Some(stream.mark()?);
        Ok(submitted)
    }
}
