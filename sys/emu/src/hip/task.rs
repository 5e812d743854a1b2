//! Tasks: what is submitted to a stream or is a node of a graph.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use hipvit_sys::hip::{hipError_t, hipGraphNodeType};

use super::copy::{Copy, Fill};
use super::launch::Launch;
use super::machine::{Device, Work};
use super::queue::{self, Action, Point, StreamId};
use super::recording::{Recorded, Recording, State};
use crate::faults::Failure;

/// Tasks that are submitted together.
pub(super) trait TaskList: Send + Sync {
    /// Returns the tasks in an order that their dependencies allow, which may differ from call to call.
    fn in_order(&self) -> Result<Vec<Task>, hipError_t>;
}

#[derive(Clone)]
pub(super) enum Task {
    Kernel(Arc<Launch>),
    Copy(Copy),
    Fill(Fill),
    /// Work of another library, with a name for reports.
    Library(Arc<str>, Arc<Work>),
    /// Work that other devices take part in, with a name for reports. Called once for each submission, in their order.
    Joint(Arc<str>, Arc<dyn Fn() -> Joint + Send + Sync>),
    Host(HostFunction),
    Record(Arc<Recording>),
    Wait(Arc<Recording>),
    /// The tasks of a child graph.
    Graph(Arc<dyn TaskList>),
    Empty,
}

/// One submission of work that other devices take part in. Between the two parts the stream waits, and other streams' work
/// may run.
pub(crate) struct Joint {
    pub(crate) before: Arc<Work>,
    pub(crate) until: Arc<dyn Fn() -> bool + Send + Sync>,
    pub(crate) after: Arc<Work>,
}

/// A function of the program's, and its argument.
#[derive(Clone)]
pub(super) struct HostFunction {
    pub(super) function: unsafe extern "C" fn(*mut c_void),
    /// The pointer's address, since the function is called on another thread.
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
            Self::Kernel(_) | Self::Library(..) | Self::Joint(..) => hipGraphNodeType::hipGraphNodeTypeKernel,
            Self::Copy(_) => hipGraphNodeType::hipGraphNodeTypeMemcpy,
            Self::Fill(_) => hipGraphNodeType::hipGraphNodeTypeMemset,
            Self::Host(_) => hipGraphNodeType::hipGraphNodeTypeHost,
            Self::Record(_) => hipGraphNodeType::hipGraphNodeTypeEventRecord,
            Self::Wait(_) => hipGraphNodeType::hipGraphNodeTypeWaitEvent,
            Self::Graph(_) => hipGraphNodeType::hipGraphNodeTypeGraph,
            Self::Empty => hipGraphNodeType::hipGraphNodeTypeEmpty,
        }
    }

    /// A name for reports and Graphviz output.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Kernel(launch) => launch.name().to_owned(),
            Self::Library(name, _) | Self::Joint(name, _) => name.to_string(),
            Self::Copy(copy) => format!("a copy of {} bytes", copy.bytes()),
            Self::Fill(fill) => format!("a fill of {} bytes", fill.bytes()),
            Self::Host(_) => "a host function".to_owned(),
            Self::Record(_) => "an event's record".to_owned(),
            Self::Wait(_) => "a wait for an event".to_owned(),
            Self::Graph(_) => "a graph".to_owned(),
            Self::Empty => "nothing".to_owned(),
        }
    }

    /// True for work of a device.
    pub(super) fn is_work(&self) -> bool {
        matches!(
            self,
            Self::Kernel(_) | Self::Copy(_) | Self::Fill(_) | Self::Library(..) | Self::Joint(..)
        )
    }

    /// Appends it to a stream.
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
                // SAFETY: the caller that submitted the copy keeps its memory until it has waited for it.
                work(Arc::new(move |memory| unsafe { copy.run(memory) }))
            }
            Self::Fill(fill) => {
                let fill = *fill;
                work(Arc::new(move |memory| fill.run(memory).map_err(Failure::from)))
            }
            Self::Library(_, run) => work(run.clone()),
            Self::Joint(_, submit) => {
                let Joint { before, until, after } = submit();
                work(before)?;
                queue::push(stream, Action::Until(until), Vec::new())?;
                work(after)
            }
            Self::Host(function) => {
                let function = function.clone();
                queue::push(
                    stream,
                    Action::Host(Arc::new(move || function.call())),
                    Vec::new(),
                )
            }
            Self::Record(recording) => {
                let time = Arc::new(OnceLock::new());
                let point = queue::push(stream, Action::Mark(time.clone()), Vec::new())?;
                recording.set(State::Recorded(Recorded { point, time }));
                Ok(point)
            }
            Self::Wait(recording) => {
                let after = recording.recorded().map(|recorded| recorded.point);
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
