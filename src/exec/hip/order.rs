//! The order of a pipeline stage's runs.

use parking_lot::Mutex;

use crate::error::Result;
use crate::hip::{Event, Stream};

/// Order of the runs of a pipeline stage, which computes them one after the other.
///
/// If a stage computed several batches at once, they would all leave it late and at the same time. The following stages would be idle in
/// the meantime.
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
