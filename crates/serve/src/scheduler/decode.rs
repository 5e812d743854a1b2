//! Threads that decode and resize images of all models.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::backend::{Preparation, PrepareTimes};
use super::fair::{EXTRA_THREADS, FairQueue, Source, Sourced as _};
use super::queue::Waiting as _;
use super::request::Content;
use super::shared::{Item, Stage};
use super::threads::join_until;
use crate::failure::{Failure, Kind};
use crate::stage::Stage as Measured;
use hipvit::error::{Error, Result};
use hipvit::image::{Cancellation, Limits};

/// Time for the threads to end after the last image was abandoned.
const END_TIME: Duration = Duration::from_secs(5);

/// Decodes images one by one, interactive ones first. Clients take turns.
#[derive(Debug)]
pub(crate) struct Decoders {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    state: Mutex<State>,
    /// Notified when an image has arrived or is done.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: FairQueue<Item>,
    closed: bool,
}

/// Source of an image that is being decoded. It counts until this is dropped.
struct Decoding<'a> {
    shared: &'a Shared,
    source: Source,
}

impl Drop for Decoding<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.waiting.done(self.source);
        if !state.waiting.is_empty() {
            // The share of a waiting client has changed.
            self.shared.changed.notify_all();
        }
    }
}

impl Decoders {
    /// Decodes `threads` images at once, and [some more](FairQueue) for clients that would have to wait for
    /// others.
    pub(crate) fn new(threads: usize, limits: Limits) -> Result<Self> {
        let shared = Arc::new(Shared {
            limits,
            state: Mutex::new(State {
                waiting: FairQueue::new(threads),
                closed: false,
            }),
            changed: Condvar::new(),
        });
        let mut decoders = Self {
            shared,
            threads: Vec::new(),
        };
        for index in 0..threads.saturating_add(EXTRA_THREADS) {
            let shared = decoders.shared.clone();
            let spawned = thread::Builder::new()
                .name(format!("hipvit-decode-{index}"))
                .spawn(move || {
                    // Dropping the image of a panicked thread answers it.
                    while catch_unwind(AssertUnwindSafe(|| shared.decode_all())).is_err() {
                        tracing::error!("a decoder thread panicked and continues");
                    }
                });
            let thread = spawned.map_err(|e| Error::resource("threads", e))?;
            decoders.threads.push(thread);
        }
        Ok(decoders)
    }

    pub(super) fn push(&self, items: Vec<Item>) {
        let mut state = self.shared.state.lock();
        let count = items.len();
        for item in items {
            state.waiting.push(item);
        }
        drop(state);
        match count {
            1 => drop(self.shared.changed.notify_one()),
            _ => drop(self.shared.changed.notify_all()),
        }
    }
}

impl Drop for Decoders {
    /// Waits until the threads have decoded what is queued and ended, so that they hold no engine. A thread
    /// that hangs is left behind.
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_all();
        if !join_until(&mut self.threads, Instant::now() + END_TIME) {
            tracing::warn!("a decoder thread does not end");
        }
    }
}

impl Shared {
    fn decode_all(&self) {
        while let Some(item) = self.next() {
            let _decoding = Decoding {
                shared: self,
                source: item.source(),
            };
            self.decode(item);
        }
    }

    fn next(&self) -> Option<Item> {
        loop {
            let mut dropped = Vec::new();
            let mut state = self.state.lock();
            let now = Instant::now();
            let taken = state.waiting.take(now, &mut dropped);
            if dropped.is_empty() && taken.is_none() {
                if state.closed && state.waiting.is_empty() {
                    return None;
                }
                self.changed.wait(&mut state);
            }
            drop(state);
            dropped.into_iter().for_each(|item| item.give_up(now));
            if taken.is_some() {
                return taken;
            }
        }
    }

    fn decode(&self, mut item: Item) {
        let engine = item.slot.engine().clone();
        let begin = Instant::now();
        item.stage(Measured::Queue, item.since, begin - item.since);
        let Stage::Received(tensor, content) = std::mem::replace(&mut item.stage, Stage::Running) else {
            return;
        };
        let what = if matches!(content, Content::Text(_)) {
            "text"
        } else {
            "image"
        };
        let name = format!("input `{tensor}`, {what} {}", item.index());
        let mut times = PrepareTimes::default();
        let is_cancelled = || item.is_abandoned(Instant::now());
        let how = Preparation {
            limits: &self.limits,
            cancellation: Cancellation::new(&is_cancelled),
        };
        let prepared = engine.prepare(&name, content, how, &mut times);
        if item.is_abandoned(Instant::now()) {
            // Free the image before the client may send more.
            drop(prepared);
            return item.give_up(Instant::now());
        }
        match prepared {
            Some(Ok(prepared)) => {
                let mut at = begin;
                let stages = [
                    (Measured::Decode, times.decode),
                    (Measured::Resize, times.resize),
                    (Measured::Tokenize, times.tokenize),
                ];
                for (stage, time) in stages {
                    if let Some(time) = time {
                        item.stage(stage, at, time);
                        at += time;
                    }
                }
                item.stage = Stage::Ready(prepared);
                item.since = Instant::now();
                engine.ready(vec![item]);
            }
            Some(Err(error)) => {
                let failure = match Failure::of_content(&error) {
                    failure if failure.kind() == Kind::Internal => failure,
                    // The message contains the name of an image, but not that of an argument.
                    failure if failure.message().starts_with("input `") => failure,
                    failure => Failure::invalid(format!("{name}: {}", failure.message())),
                };
                item.finish(Err(failure));
            }
            None => item.finish(Err(engine.unavailable(false))),
        }
    }
}
