//! Progress of a rank's work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::event::Event;

/// State of a rank's work.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of submissions with collectives.
    pub(super) submitted: AtomicU64,
    pub(super) looked: Mutex<Looked>,
}

/// State that the watchdog keeps.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Number of submissions before the last event.
    pub(super) covered: u64,
    /// An event that was not reached at the last poll, and the time when it was recorded.
    pub(super) waiting: Option<(Event, Instant)>,
}

impl Progress {
    /// Counts a submission.
    pub(super) fn submit(&self) {
        self.submitted.fetch_add(1, Ordering::AcqRel);
    }
}
