//! Events between the calls on a stream.

use std::time::Duration;

use crate::error::Result;
use crate::hip::{Event, Launch, Stream};

/// A kernel or library call, and its time.
#[derive(Clone, Debug)]
pub struct TimedCall {
    /// Index of the step's node in the graph.
    pub node: usize,
    /// Name of the kernel, or of the library and its operation.
    pub name: String,
    /// Shape of the operands, if known.
    pub shape: Option<String>,
    /// Launch geometry of a kernel. `None` for library calls.
    pub launch: Option<Launch>,
    /// Time from the end of the previous call to the end of this one.
    pub time: Duration,
}

/// Events between the calls on a stream.
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

    /// Attributes the following calls to a node.
    pub(super) fn set_node(&mut self, node: usize) {
        self.node = node;
    }

    /// Records the end of the call that was just submitted.
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
