//! What can be submitted to a stream, and so be a node of a graph.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use hipvit_sys::hip::{hipError_t, hipGraphNodeType};

use super::copy::{Copy, Fill};
use super::event::{Event, Recorded};
use super::graph::Graph;
use super::launch::Launch;
use super::machine::{Device, Work};
use super::queue::{self, Action, Point, StreamId};
use crate::faults::Failure;

#[derive(Clone)]
pub(super) enum Task {
    Kernel(Arc<Launch>),
    Copy(Copy),
    Fill(Fill),
    /// Work of another library, by its name.
    Library(Arc<str>, Arc<Work>),
    Host(HostFunction),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Graph(Arc<Graph>),
    Empty,
}

/// A function of the program's, and its argument.
#[derive(Clone)]
pub(super) struct HostFunction {
    pub(super) function: unsafe extern "C" fn(*mut c_void),
    /// The pointer's address: it is the program's, and goes back to it on another thread.
    pub(super) argument: usize,
}

impl HostFunction {
    fn call(&self) {
        // SAFETY: the program gave the function with this argument to be called on a thread of the runtime.
        unsafe { (self.function)(std::ptr::with_exposed_provenance_mut(self.argument)) };
    }
}

impl Task {
    pub(super) fn kind(&self) -> hipGraphNodeType {
        match self {
            Self::Kernel(_) | Self::Library(..) => hipGraphNodeType::hipGraphNodeTypeKernel,
            Self::Copy(_) => hipGraphNodeType::hipGraphNodeTypeMemcpy,
            Self::Fill(_) => hipGraphNodeType::hipGraphNodeTypeMemset,
            Self::Host(_) => hipGraphNodeType::hipGraphNodeTypeHost,
            Self::Record(_) => hipGraphNodeType::hipGraphNodeTypeEventRecord,
            Self::Wait(_) => hipGraphNodeType::hipGraphNodeTypeWaitEvent,
            Self::Graph(_) => hipGraphNodeType::hipGraphNodeTypeGraph,
            Self::Empty => hipGraphNodeType::hipGraphNodeTypeEmpty,
        }
    }

    /// For reports and drawings.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Kernel(launch) => launch.name().to_owned(),
            Self::Library(name, _) => name.to_string(),
            Self::Copy(copy) => format!("a copy of {} bytes", copy.bytes()),
            Self::Fill(fill) => format!("a fill of {} bytes", fill.bytes()),
            Self::Host(_) => "a host function".to_owned(),
            Self::Record(_) => "an event's record".to_owned(),
            Self::Wait(_) => "a wait for an event".to_owned(),
            Self::Graph(_) => "a graph".to_owned(),
            Self::Empty => "nothing".to_owned(),
        }
    }

    /// Whether it makes a device work.
    pub(super) fn is_work(&self) -> bool {
        matches!(
            self,
            Self::Kernel(_) | Self::Copy(_) | Self::Fill(_) | Self::Library(..)
        )
    }

    /// Puts it at the end of a stream.
    pub(super) fn push(&self, stream: StreamId, device: &'static Device) -> Result<Point, hipError_t> {
        let work = |work: Arc<Work>| {
            let name = self.name();
            let run = move || device.run(&name, &*work);
            queue::push(stream, Action::Work(Arc::new(run)), Vec::new())
        };
        match self {
            Self::Kernel(launch) => {
                let launch = launch.clone();
                work(Arc::new(move |_| launch.run()))
            }
            Self::Copy(copy) => {
                let copy = *copy;
                // SAFETY: who submitted the copy keeps its memory until it was waited for.
                work(Arc::new(move |memory| unsafe { copy.run(memory) }))
            }
            Self::Fill(fill) => {
                let fill = *fill;
                work(Arc::new(move |memory| fill.run(memory).map_err(Failure::from)))
            }
            Self::Library(_, run) => work(run.clone()),
            Self::Host(function) => {
                let function = function.clone();
                queue::push(
                    stream,
                    Action::Host(Arc::new(move || function.call())),
                    Vec::new(),
                )
            }
            Self::Record(event) => {
                let time = Arc::new(OnceLock::new());
                let point = queue::push(stream, Action::Mark(time.clone()), Vec::new())?;
                event.set(Recorded { point, time });
                Ok(point)
            }
            Self::Wait(event) => {
                let after = event.recorded().map(|recorded| recorded.point);
                queue::push(stream, Action::Nothing, after.into_iter().collect())
            }
            Self::Graph(graph) => {
                for task in graph.in_order()? {
                    task.push(stream, device)?;
                }
                queue::push(stream, Action::Nothing, Vec::new())
            }
            Self::Empty => queue::push(stream, Action::Nothing, Vec::new()),
        }
    }
}
