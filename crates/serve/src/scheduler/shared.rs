//! State that the threads of an engine share, and the images in it, each with its place in the queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use parking_lot::{Condvar, Mutex};

use super::backend::{Preparation, PrepareTimes};
use super::fair::{Source, Sourced};
use super::instance::Instance;
use super::queue::{BatchRule, Queue, Waiting};
use super::request::{Content, ImageResult, Prepared, Request};
use crate::client::Client;
use crate::failure::{Failure, Kind};
use crate::metrics::EngineMetrics;
use crate::priority::Priority;
use crate::stage::Stage as Measured;
use crate::statistics::Parts;
use crate::traces::Trace;
use hipvit::error::{Error, Result};

/// Reason why an engine without instances runs nothing.
pub(super) const NO_DEVICE: &str = "has no working device left. Load it again";

/// Options of an engine: its batches and its capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineOptions {
    pub(crate) batch: BatchRule,
    /// Maximum number of images that wait or run.
    pub(crate) capacity: usize,
    /// Number of waiting or running images, per batch that the instances compute at once, from which nothing
    /// more is admitted.
    pub(crate) backlog: usize,
    /// Time without a finished batch after which a busy instance counts as stalled.
    pub(crate) stall: Duration,
}

/// State shared by the threads of an engine.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) options: EngineOptions,
    pub(super) instances: Vec<Instance>,
    /// Number of admitted and unfinished images, by priority.
    pub(super) admitted: [AtomicUsize; 2],
    pub(super) state: Mutex<State>,
    /// Notified when an image is ready, the engine closes, or an instance is lost.
    pub(super) changed: Condvar,
    pub(super) metrics: EngineMetrics,
}

pub(super) struct State {
    pub(super) ready: Queue<Item>,
    /// Number of admitted and unfinished images of each client.
    pub(super) by_client: HashMap<Option<Client>, usize>,
    pub(super) closed: bool,
    /// Number of threads that have not ended.
    pub(super) threads: usize,
}

/// Queue space of one image, freed on drop.
pub(super) struct Slot {
    pub(super) engine: Arc<Shared>,
    pub(super) class: usize,
    pub(super) client: Option<Client>,
}

impl Slot {
    pub(super) fn engine(&self) -> &Arc<Shared> {
        &self.engine
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.engine.state.lock();
        if let Entry::Occupied(mut held) = state.by_client.entry(self.client) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        self.engine.admitted[self.class].fetch_sub(1, Ordering::AcqRel);
        if self.engine.admitted() == 0 {
            // Threads of a closed engine wait for the last image.
            self.engine.changed.notify_all();
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("engine", &self.engine.name).finish()
    }
}

impl Shared {
    /// Drops images that no client waits for. Instances do that when they take a batch, unless their devices
    /// hang.
    pub(super) fn give_up_abandoned(&self) {
        let (now, mut dropped) = (Instant::now(), Vec::new());
        self.state.lock().ready.remove_abandoned(now, &mut dropped);
        self.give_up(dropped, now);
    }

    /// Counts and ends items that no client waits for. Items must not be dropped under the lock, which the last of them takes.
    pub(super) fn give_up(&self, dropped: Vec<Item>, now: Instant) {
        self.metrics.dropped(dropped.len());
        dropped.into_iter().for_each(|item| item.give_up(now));
    }

    /// Returns the number of batches that the remaining instances compute at once.
    pub(super) fn computes(&self) -> usize {
        let working = self.instances.iter().filter(|instance| instance.is_alive());
        working.map(|instance| instance.computes).sum()
    }

    pub(super) fn admitted(&self) -> usize {
        self.admitted
            .iter()
            .map(|count| count.load(Ordering::Acquire))
            .sum()
    }

    pub(super) fn metrics(&self) -> &EngineMetrics {
        &self.metrics
    }

    pub(super) fn unavailable(&self, closed: bool) -> Failure {
        let reason = if closed { "is being unloaded" } else { NO_DEVICE };
        Failure::new(Kind::Unavailable, format!("model `{}` {reason}", self.name))
    }

    /// Estimates the time to run all admitted images, in whole seconds as HTTP needs it.
    pub(super) fn retry_after(&self, admitted: usize) -> Duration {
        let seconds = self.metrics.seconds_per_image() * admitted as f64;
        Duration::from_secs((seconds.ceil() as u64).clamp(1, 60))
    }

    /// Decodes and resizes an image on the calling thread, unless no instance is left.
    pub(super) fn prepare(
        &self,
        name: &str,
        content: Content,
        how: Preparation<'_>,
        times: &mut PrepareTimes,
    ) -> Option<Result<Prepared>> {
        // Preparation only uses the host and is the same for each instance.
        let mut instances = self
            .instances
            .iter()
            .filter_map(|instance| instance.backend.try_read());
        let instance = instances.find(|backend| backend.is_some())?;
        let backend = instance.as_ref()?;
        let prepared = catch_unwind(AssertUnwindSafe(|| backend.prepare(name, content, how, times)));
        Some(prepared.unwrap_or_else(|_| Err(Error::internal("image", "decoding it panicked"))))
    }

    /// Returns true unless the device is known to be lost. Threads of a lost instance end a little later.
    pub(super) fn works(&self) -> bool {
        self.instances.iter().any(Instance::is_alive)
    }

    /// Queues images that are ready to run. Fails them if no instance is left.
    pub(super) fn ready(&self, items: Vec<Item>) {
        let mut state = self.state.lock();
        if state.threads == 0 {
            let closed = state.closed;
            drop(state);
            for item in items {
                item.finish(Err(self.unavailable(closed)));
            }
            return;
        }
        let now = Instant::now();
        for item in items {
            state.ready.push(item, now);
        }
        drop(state);
        // Notify all: one thread may wait for a batch to fill, others for any image.
        self.changed.notify_all();
    }
}

/// One image of a request. It ends in exactly one of [`finish`](Self::finish) and `drop`, so that every
/// request is answered.
#[derive(Debug)]
pub(super) struct Item {
    request: Arc<Request>,
    index: usize,
    finished: bool,
    /// True if an earlier batch with it failed.
    pub(super) retried: bool,
    /// Time at which it was admitted.
    pub(super) arrived: Instant,
    /// Time at which it began to wait, for decoding or for its batch.
    pub(super) since: Instant,
    pub(super) stage: Stage,
    pub(super) parts: Parts,
    /// Queue space of the image, freed when it is finished.
    pub(super) slot: Slot,
}

/// Stage of an image.
#[derive(Debug)]
pub(super) enum Stage {
    /// Waiting to be decoded, if it is an image, and resized. The name of its tensor is for errors.
    Received(&'static str, Content),
    Ready(Prepared),
    /// In a batch.
    Running,
}

impl Item {
    pub(super) fn new(
        request: &Arc<Request>,
        index: usize,
        (tensor, content): (&'static str, Content),
        now: Instant,
        slot: Slot,
    ) -> Self {
        let stage = match content {
            Content::Values(values) => Stage::Ready(Prepared::Values(values)),
            Content::Tensors(inputs) => Stage::Ready(Prepared::Tensors(inputs)),
            content => Stage::Received(tensor, content),
        };
        Self {
            request: request.clone(),
            index,
            finished: false,
            retried: false,
            arrived: now,
            since: now,
            stage,
            parts: Parts::default(),
            slot,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Ends the wait of items at `begin`, and takes what they prepared.
    pub(super) fn begin(items: &mut [Self], begin: Instant) -> Vec<Prepared> {
        let take = |item: &mut Self| {
            item.stage(Measured::Queue, item.since, begin - item.since);
            match std::mem::replace(&mut item.stage, Stage::Running) {
                Stage::Ready(prepared) => Some(prepared),
                _ => None,
            }
        };
        items.iter_mut().filter_map(take).collect()
    }

    /// Adds a stage of this image to the metrics, and to the trace of its request.
    pub(super) fn stage(&mut self, stage: Measured, begin: Instant, time: Duration) {
        match stage {
            Measured::Queue => self.parts.queue += time,
            Measured::Decode | Measured::Resize | Measured::Tokenize => self.parts.input += time,
            Measured::Copy
            | Measured::Compute
            | Measured::Explain
            | Measured::Step
            | Measured::FirstToken
            | Measured::Generate => {}
        }
        self.slot.engine().metrics().stage(stage, time);
        let attributes = || vec![KeyValue::new("hipvit.image", self.index as i64)];
        self.request
            .terms
            .trace
            .stage(stage.name(), begin, time, attributes);
    }

    /// Returns the traces of the items' requests without duplicates.
    pub(super) fn traces(items: &[Self]) -> Vec<Trace> {
        let mut requests: Vec<&Arc<Request>> = Vec::new();
        for item in items.iter().filter(|item| item.request.terms.trace.is_sampled()) {
            // Items of one request are mostly adjacent.
            if !requests
                .iter()
                .rev()
                .any(|request| Arc::ptr_eq(request, &item.request))
            {
                requests.push(&item.request);
            }
        }
        requests
            .into_iter()
            .map(|request| request.terms.trace.clone())
            .collect()
    }

    pub(super) fn finish(mut self, result: Result<ImageResult, Failure>) {
        self.finished = true;
        self.request.finish(self.index, result);
    }

    /// Ends an image that has not run and whose result is not needed any more.
    pub(super) fn give_up(self, now: Instant) {
        self.end_abandoned(now, "the deadline passed before the image was run");
    }

    /// Ends an image whose result is not needed any more. `late` is the reason after the deadline.
    pub(super) fn end_abandoned(self, now: Instant, late: &str) {
        let failure = if self.request.terms.deadline <= now {
            Failure::new(Kind::DeadlineExceeded, late)
        } else {
            Failure::new(Kind::Unavailable, "the request was abandoned")
        };
        self.finish(Err(failure));
    }
}

impl Waiting for Item {
    fn priority(&self) -> Priority {
        self.request.terms.priority
    }

    fn is_abandoned(&self, now: Instant) -> bool {
        self.request.is_abandoned(now)
    }

    fn runs_alone(&self) -> bool {
        self.retried
    }
}

impl Sourced for Item {
    fn source(&self) -> Source {
        Source {
            client: self.request.terms.client,
            engine: Arc::as_ptr(self.slot.engine()).addr(),
        }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        if !self.finished {
            let failure = Failure::new(Kind::Internal, "the server lost the image");
            self.request.finish(self.index, Err(failure));
        }
    }
}
