//! The time of each kernel and library call of a plan, by events between them; and of whole runs, one right behind the other.

use std::sync::Arc;
use std::time::Duration;

use rayon::ThreadPool;

use super::steps::Steps;
use super::{Feed, HipExecutor, Reserved};
use crate::error::Result;
use crate::graph::plan::Plan;
use crate::hip::{Event, Launch, Stream, Work};

/// So many runs are submitted without waiting at most.
const MAX_RUNS: f64 = 1000.0;

/// A kernel or library call of a run whose calls were timed one by one.
#[derive(Clone, Debug)]
pub struct TimedCall {
    /// The index of its step's node in the graph.
    pub node: usize,
    /// The kernel, or the library and what it was asked for.
    pub name: String,
    /// What is known of its operands.
    pub shape: Option<String>,
    /// A kernel's geometry; libraries do not tell theirs.
    pub launch: Option<Launch>,
    /// From the end of the call before it to its own end.
    pub time: Duration,
}

/// Events between calls on one stream.
#[derive(Debug)]
pub(super) struct CallClock {
    begin: Event,
    node: usize,
    calls: Vec<(TimedCall, Event)>,
}

impl CallClock {
    pub(super) fn start(stream: &Stream) -> Result<Self> {
        Ok(Self {
            begin: stream.record()?,
            node: 0,
            calls: Vec::new(),
        })
    }

    /// What follows is of this node.
    pub(super) fn at(&mut self, node: usize) {
        self.node = node;
    }

    /// A call has just been submitted.
    pub(super) fn tick(
        &mut self,
        stream: &Stream,
        name: String,
        shape: Option<String>,
        launch: Option<Launch>,
    ) -> Result<()> {
        let call = TimedCall {
            node: self.node,
            name,
            shape,
            launch,
            time: Duration::ZERO,
        };
        self.calls.push((call, stream.record()?));
        Ok(())
    }

    fn finish(self) -> Result<Vec<TimedCall>> {
        let mut before = self.begin;
        let mut calls = Vec::with_capacity(self.calls.len());
        for (call, event) in self.calls {
            let time = event.since(&before)?;
            calls.push(TimedCall { time, ..call });
            before = event;
        }
        Ok(calls)
    }
}

impl HipExecutor {
    /// Runs the steps of `plan` on grey images one by one, with an event after each kernel and library call.
    ///
    /// The events keep kernels from following each other closely, so that the times are longer than within a replay.
    ///
    /// # Errors
    ///
    /// As those of a run.
    pub fn time_calls(&self, plan: &Arc<Plan>, threads: &ThreadPool) -> Result<Vec<TimedCall>> {
        let input = vec![0x80; plan.input_bytes()];
        let Reserved { plan, mut context } = self.reserve(plan.clone())?;
        let uploads = self.feed(&mut context, &plan, Feed::Pageable(&input), threads, &mut None)?;
        let stream = context.stream.clone();
        context.libraries.calls = Some(CallClock::start(&stream)?);
        Steps::new(self, &plan, &mut context).enqueue(&stream)?;
        let calls = context.libraries.calls.take();
        stream.synchronize()?;
        let calls = calls.map_or_else(|| Ok(Vec::new()), CallClock::finish)?;
        for upload in uploads {
            self.keep(upload.wait()?);
        }
        self.contexts().push(context);
        Ok(calls)
    }

    /// The device's time of a run of `plan`: of one, or if that is shorter than `time`, of as many as take that long, without a pause
    /// between them. From the third on a plan's runs are replayed, if they are at all.
    ///
    /// # Errors
    ///
    /// As those of a run.
    pub fn time_runs(&self, plan: &Arc<Plan>, time: Duration, threads: &ThreadPool) -> Result<Duration> {
        // Power, and with it the clock, depends on the values.
        let input: Vec<u8> = (0..plan.input_bytes()).map(|i| (i * 7919 % 251) as u8).collect();
        let Reserved { plan, mut context } = self.reserve(plan.clone())?;
        let uploads = self.feed(&mut context, &plan, Feed::Pageable(&input), threads, &mut None)?;
        let stream = context.stream.clone();
        let mut run = |count: u32| -> Result<Duration> {
            let before = stream.record()?;
            for _ in 0..count {
                self.compute(&mut context, &plan, &mut None)?;
            }
            Ok(stream.record()?.since(&before)? / count)
        };
        let mut each = run(1)?;
        if each < time {
            let count = time.as_secs_f64() / each.as_secs_f64().max(1e-6);
            each = run(count.ceil().min(MAX_RUNS) as u32)?;
        }
        for upload in uploads {
            self.keep(upload.wait()?);
        }
        self.contexts().push(context);
        Ok(each)
    }
}
