//! Events between the calls on one stream.

use std::time::Duration;

use crate::error::Result;
use crate::hip::{Event, Launch, Stream};

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

    /// Attributes the calls that follow to a node.
    pub(super) fn set_node(&mut self, node: usize) {
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

    pub(super) fn finish(self) -> Result<Vec<TimedCall>> {
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
