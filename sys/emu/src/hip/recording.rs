//! The last record of an event, which tasks set and wait for.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::queue::Point;

/// A record that is in a stream: its point, and the time when the stream reached it.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) point: Point,
    pub(super) time: Arc<OnceLock<Instant>>,
}

/// Place where an event was last recorded.
#[derive(Clone)]
pub(super) enum State {
    Never,
    Recorded(Recorded),
    /// Recorded on a stream that was being captured.
    Captured,
}

/// The last record of an event.
pub(super) struct Recording(Mutex<State>);

impl Recording {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Never)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, state: State) {
        *self.lock() = state;
    }

    pub(super) fn state(&self) -> State {
        self.lock().clone()
    }

    /// The record, unless the event was never recorded or last in a capture.
    pub(super) fn recorded(&self) -> Option<Recorded> {
        match self.state() {
            State::Recorded(recorded) => Some(recorded),
            _ => None,
        }
    }
}
