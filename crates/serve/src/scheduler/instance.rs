//! An instance of a model on its device: its health and its progress.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::backend::Backend;
use hipvit::error::{Error, Result};

/// Number of panics of its threads within [`PANIC_WINDOW`] after which an instance is taken out.
const MAX_PANICS: usize = 5;

/// Time in which panics are counted.
const PANIC_WINDOW: Duration = Duration::from_secs(60);

/// Time to wait for the last user of a lost device. Afterwards that user keeps the memory.
const RELEASE_TIME: Duration = Duration::from_secs(5);

pub(super) struct Instance {
    /// Backend; `None` after the device was lost. A thread that uses it holds the lock.
    pub(super) backend: RwLock<Option<Arc<dyn Backend>>>,
    pub(super) device: String,
    /// Number of batches that it computes at once.
    pub(super) computes: usize,
    alive: AtomicBool,
    activity: Mutex<Activity>,
    /// Times at which its threads panicked.
    panics: Mutex<VecDeque<Instant>>,
}

struct Activity {
    /// Number of running batches.
    running: usize,
    /// Time at which the last batch ended, or at which the first one began after a pause.
    progressed: Instant,
}

/// A running batch, until this is dropped.
pub(super) struct Running<'a>(&'a Instance);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut activity = self.0.activity.lock();
        activity.running -= 1;
        activity.progressed = Instant::now();
    }
}

impl Instance {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            device: backend.device(),
            computes: backend.computes(),
            backend: RwLock::new(Some(backend)),
            alive: AtomicBool::new(true),
            activity: Mutex::new(Activity {
                running: 0,
                progressed: Instant::now(),
            }),
            panics: Mutex::default(),
        }
    }

    /// Returns true if the instance makes texts of images.
    pub(super) fn makes_texts(&self) -> bool {
        matches!(self.with(|backend| Ok(backend.text_maker().is_some())), Ok(true))
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Takes the instance out. Returns false if it was already out.
    pub(super) fn take_out(&self) -> bool {
        self.alive.swap(false, Ordering::AcqRel)
    }

    /// Notes that a batch begins.
    pub(super) fn begin(&self) -> Running<'_> {
        let mut activity = self.activity.lock();
        if activity.running == 0 {
            activity.progressed = Instant::now();
        }
        activity.running += 1;
        Running(self)
    }

    /// Returns true if batches run and none has ended for `limit`.
    pub(super) fn is_stalled(&self, now: Instant, limit: Duration) -> bool {
        let activity = self.activity.lock();
        activity.running > 0 && now.saturating_duration_since(activity.progressed) > limit
    }

    /// Notes a panic of one of the threads. Returns true after [`MAX_PANICS`] within [`PANIC_WINDOW`].
    pub(super) fn panicked(&self, now: Instant) -> bool {
        let mut panics = self.panics.lock();
        panics.push_back(now);
        panics.retain(|&at| now.saturating_duration_since(at) < PANIC_WINDOW);
        panics.len() >= MAX_PANICS
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&dyn Backend) -> Result<R>) -> Result<R> {
        match &*self.backend.read() {
            Some(backend) => work(&**backend),
            None => Err(Error::device(&self.device, "is lost")),
        }
    }

    /// Drops the backend of a lost device once no thread uses it. Gives up after [`RELEASE_TIME`] if a thread
    /// hangs.
    pub(super) fn release_if_lost(&self) {
        if self.is_alive() {
            return;
        }
        let Some(mut held) = self.backend.try_write_for(RELEASE_TIME) else {
            tracing::warn!(
                device = self.device,
                "a thread hangs on a lost device and keeps its memory"
            );
            return;
        };
        let Some(backend) = held.take() else {
            return;
        };
        let gpus = backend.gpus();
        drop(backend);
        for gpu in gpus {
            // The next call on a GPU reports that a drop failed. This call takes the error, so that it does
            // not reach a session on a GPU that only shared a model with the lost one.
            let _ = gpu.memory();
        }
    }
}
