//! Thread of an instance: takes batches, runs them, and handles those that fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;

use super::instance::Instance;
use super::queue::Taken;
use super::request::{BatchResults, ImageResult, Prepared};
use super::shared::{Item, Shared, Stage};
use crate::failure::{Failure, Kind};
use crate::stage::Stage as Measured;
use crate::statistics::RunTimes;
use hipvit::error::{Error, Result};

impl Shared {
    /// Runs batches on an instance until the engine is closed and empty, or the instance is lost.
    pub(super) fn work(&self, index: usize) {
        let instance = &self.instances[index];
        // Runs on every exit of the thread.
        let _end = ThreadEnd {
            shared: self,
            instance,
        };
        let batches = || {
            if instance.makes_texts() {
                return self.make_texts(instance);
            }
            let mut number = 0u32;
            while let Some(batch) = self.next_batch(instance) {
                number = number.wrapping_add(1);
                self.run(instance, batch, number);
            }
        };
        // Items of a panicked thread are answered when they are dropped. The thread continues instead of a
        // new one.
        while catch_unwind(AssertUnwindSafe(batches)).is_err() {
            self.restart(instance);
        }
    }

    /// Counts a panic of an instance's thread. Takes the instance out after repeated panics.
    fn restart(&self, instance: &Instance) {
        let (model, device) = (&self.name, &instance.device);
        self.metrics.restarted(device);
        if !instance.panicked(Instant::now()) {
            tracing::error!(%model, %device, "a thread of an instance panicked and was replaced");
        } else if instance.take_out() {
            tracing::error!(%model, %device, "an instance panicked too often: it is taken out");
            self.metrics.lost(device);
            self.wake_all();
        }
    }

    /// Wakes all threads of the engine, which may wait for images.
    fn wake_all(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    pub(super) fn next_batch(&self, instance: &Instance) -> Option<Vec<Item>> {
        loop {
            let mut dropped = Vec::new();
            let mut state = self.state.lock();
            if !instance.is_alive() {
                return None;
            }
            let now = Instant::now();
            let closed = state.closed;
            let taken = state.ready.take(now, closed, &mut dropped);
            if dropped.is_empty() {
                match taken {
                    Taken::WaitUntil(complete) => drop(self.changed.wait_until(&mut state, complete)),
                    Taken::Empty if closed && self.admitted() == 0 => return None,
                    Taken::Empty => self.changed.wait(&mut state),
                    Taken::Batch(_) => {}
                }
            }
            drop(state);
            self.give_up(dropped, now);
            if let Taken::Batch(batch) = taken {
                return Some(batch);
            }
        }
    }

    fn run(&self, instance: &Instance, mut items: Vec<Item>, number: u32) {
        let _running = instance.begin();
        let begin = Instant::now();
        let batch = Item::begin(&mut items, begin);
        match run_caught(instance, &batch, number) {
            Ok((results, times)) => {
                let time = begin.elapsed();
                let prepared = items.iter().map(|item| item.parts.input).max();
                self.metrics
                    .batch(items.len(), prepared.unwrap_or_default(), time, times);
                trace(&items, instance, begin, time, times);
                let results = Arc::new(results);
                let output = times.map_or(Duration::ZERO, |times| times.copy_out);
                for (row, mut item) in items.into_iter().enumerate() {
                    item.parts.infer = time.saturating_sub(output);
                    item.parts.output = output;
                    if let Ok(Some(reason)) = instance.with(|backend| Ok(backend.refused(&results, row))) {
                        let reason = format!("image {}: {reason}", item.index());
                        item.finish(Err(Failure::new(Kind::Internal, reason)));
                        continue;
                    }
                    let result = ImageResult::new(results.clone(), row).with_parts(item.parts);
                    item.finish(Ok(result));
                }
            }
            Err(error) => self.failed(instance, items, batch, &error),
        }
    }

    /// Takes an instance out if its device is lost. Queues each image of the failed batch again to run alone,
    /// so that a bad image fails no others.
    pub(super) fn failed(&self, instance: &Instance, items: Vec<Item>, batch: Vec<Prepared>, error: &Error) {
        let (model, device) = (&self.name, &instance.device);
        let checked = catch_unwind(AssertUnwindSafe(|| instance.with(|backend| backend.check())));
        if !matches!(checked, Ok(Ok(()))) && instance.take_out() {
            tracing::error!(%model, %device, %error, "device lost: its instance is taken out");
            self.metrics.lost(device);
            self.wake_all();
        } else {
            tracing::warn!(%model, %device, %error, images = items.len(), "a batch failed");
        }
        let elsewhere = self.works();
        let (mut again, mut over) = (Vec::new(), Vec::new());
        for (mut item, prepared) in items.into_iter().zip(batch) {
            if item.retried {
                over.push((item, Failure::of_model(error)));
            } else if !elsewhere {
                over.push((item, self.unavailable(false)));
            } else {
                item.retried = true;
                item.since = Instant::now();
                item.stage = Stage::Ready(prepared);
                again.push(item);
            }
        }
        self.metrics.retried(again.len());
        let mut state = self.state.lock();
        let now = Instant::now();
        for item in again.into_iter().rev() {
            state.ready.push_front(item, now);
        }
        drop(state);
        self.changed.notify_all();
        for (item, failure) in over {
            item.finish(Err(failure));
        }
    }
}

/// Ends an instance's thread on drop.
struct ThreadEnd<'a> {
    shared: &'a Shared,
    instance: &'a Instance,
}

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        let shared = self.shared;
        let mut state = shared.state.lock();
        state.threads -= 1;
        // No other thread would take the waiting images.
        let (closed, left) = match state.threads {
            0 => (state.closed, state.ready.drain()),
            _ => (false, Vec::new()),
        };
        drop(state);
        shared.changed.notify_all();
        for item in left {
            item.finish(Err(shared.unavailable(closed)));
        }
        self.instance.release_if_lost();
    }
}

/// Adds a batch to the traces of its requests as the span `run`. If they were measured, it contains the
/// copies to and from the device together, and the computation.
fn trace(items: &[Item], instance: &Instance, begin: Instant, time: Duration, times: Option<RunTimes>) {
    for trace in Item::traces(items) {
        let attributes = || {
            vec![
                KeyValue::new("hipvit.batch.size", items.len() as i64),
                KeyValue::new("hipvit.device", instance.device.clone()),
            ]
        };
        trace.stage("run", begin, time, attributes);
        if let Some(RunTimes { copy, compute, .. }) = times {
            trace.stage(Measured::Copy.name(), begin, copy, attributes);
            trace.stage(Measured::Compute.name(), begin + copy, compute, attributes);
        }
    }
}

/// Runs a batch. A panic or a result of another size becomes an error.
fn run_caught(
    instance: &Instance,
    batch: &[Prepared],
    number: u32,
) -> Result<(BatchResults, Option<RunTimes>)> {
    let run = || instance.with(|backend| backend.run(batch, number));
    let run = catch_unwind(AssertUnwindSafe(run));
    let (results, times) = run.unwrap_or_else(|_| Err(Error::internal("batch", "running it panicked")))?;
    if results.len() != batch.len() {
        let reason = format!("{} results for {} images", results.len(), batch.len());
        return Err(Error::internal("batch", reason));
    }
    Ok((results, times))
}
