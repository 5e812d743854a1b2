//! A run of all ranks, and its results.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::Error;
use crate::exec::executor::Submission;
use crate::exec::output::RunOutputs;
use crate::timing::Timing;

/// A run of all ranks.
pub(super) struct Run {
    pub(super) batch: usize,
    pub(super) input: Mutex<Option<Arc<Vec<u8>>>>,
    pub(super) how: Submission,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Number of ranks that have finished.
    pub(super) done: usize,
    /// Reason why the run was not started.
    pub(super) refused: Option<Error>,
    pub(super) results: Results,
}

/// Results of the first rank.
#[derive(Default)]
pub(super) struct Results {
    pub(super) outputs: RunOutputs,
    pub(super) timing: Timing,
}

impl Run {
    pub(super) fn new(batch: usize, input: Arc<Vec<u8>>, how: Submission) -> Self {
        Self {
            batch,
            input: Mutex::new(Some(input)),
            how,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Keeps the results of the first rank.
    pub(super) fn keep(&self, results: Results) {
        self.state.lock().results = results;
    }

    /// Records that a rank has finished the run, or refused it for lack of memory.
    pub(super) fn done(&self, refused: Option<Error>) {
        let mut state = self.state.lock();
        // The error of the GPU without memory is more informative than those of the other ranks.
        if let Some(error) = refused
            && (state.refused.is_none() || matches!(error, Error::Hip(_)))
        {
            state.refused = Some(error);
        }
        state.done += 1;
        self.changed.notify_all();
    }
}
