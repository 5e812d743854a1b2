//! The threads that decode and resize, shared by all models.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::backend::PrepareTimes;
use super::queue::{BatchRule, Queue, Taken};
use super::request::{Content, Item, Stage};
use crate::error::{Error, Result};
use crate::image::Limits;
use crate::serve::failure::{Failure, Kind};
use crate::serve::metrics::Stage as Measured;

/// Decodes images one by one, interactive ones first.
#[derive(Debug)]
pub(crate) struct Decoders {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: Queue<Item>,
    closed: bool,
}

impl Decoders {
    /// Starts `threads` threads.
    pub(crate) fn new(threads: usize, limits: Limits) -> Result<Self> {
        let shared = Arc::new(Shared {
            limits,
            state: Mutex::new(State {
                waiting: Queue::new(BatchRule {
                    max_batch: 1,
                    max_delay: Duration::ZERO,
                }),
                closed: false,
            }),
            arrived: Condvar::new(),
        });
        let mut decoders = Self {
            shared,
            threads: Vec::with_capacity(threads),
        };
        for index in 0..threads {
            let shared = decoders.shared.clone();
            let spawned = thread::Builder::new()
                .name(format!("hipvit-decode-{index}"))
                .spawn(move || shared.decode_all());
            let thread = spawned.map_err(|e| Error::argument("threads", e))?;
            decoders.threads.push(thread);
        }
        Ok(decoders)
    }

    pub(super) fn push(&self, items: Vec<Item>, now: Instant) {
        let mut state = self.shared.state.lock();
        let count = items.len();
        for item in items {
            state.waiting.push(item, now);
        }
        drop(state);
        match count {
            1 => drop(self.shared.arrived.notify_one()),
            _ => drop(self.shared.arrived.notify_all()),
        }
    }
}

impl Drop for Decoders {
    /// Waits until the threads have decoded what is queued and ended: they hold no engine any more.
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A panic has been reported, and what the thread held is free.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn decode_all(&self) {
        while let Some(item) = self.next() {
            self.decode(item);
        }
    }

    fn next(&self) -> Option<Item> {
        loop {
            let mut dropped = Vec::new();
            let mut state = self.state.lock();
            let taken = state.waiting.take(Instant::now(), true, &mut dropped);
            if dropped.is_empty() && matches!(taken, Taken::Empty) {
                if state.closed {
                    return None;
                }
                self.arrived.wait(&mut state);
            }
            drop(state);
            let now = Instant::now();
            dropped.into_iter().for_each(|item| item.give_up(now));
            if let Taken::Batch(mut batch) = taken {
                return batch.pop();
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
        match engine.prepare(&name, content, &self.limits, &mut times) {
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
                let failure = match Failure::of(&error) {
                    failure if failure.kind() == Kind::Internal => failure,
                    // The image's own name is in the message; that of an argument is not.
                    failure if failure.message().starts_with(&name) => failure,
                    failure => Failure::invalid(format!("{name}: {}", failure.message())),
                };
                item.finish(Err(failure));
            }
            None => item.finish(Err(engine.unavailable(false))),
        }
    }
}
