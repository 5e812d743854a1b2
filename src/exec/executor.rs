//! The interface of all executors: [`Executor`], the memory of a run ([`Reservation`]), and a run ([`PendingRun`]).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::input::Inputs;
use super::output::RunOutputs;
use super::replays::{GraphSwitch, Replays};
use super::slabs::Slabs;
use super::staging::Staging;
use super::threads::HostThreads;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::hip::{Device, Event, Operand};
use crate::tensor::DType;
use crate::timing::Timing;

/// Runs plans of one graph on one device, or on a group of devices.
///
/// A run has three parts: [`reserve`](Executor::reserve) finds memory for it, [`Reservation::submit`] starts it, and
/// [`PendingRun::finish`] waits for it. Any number of threads may run an executor at once.
///
/// If the graph has parameters or states, the runs execute one after the other, in the order of submission. A run reads what the runs before
/// it wrote.
pub trait Executor: Any + fmt::Debug + Send + Sync {
    /// Returns the devices and what the executor accepts.
    fn info(&self) -> &ExecutorInfo;

    /// Returns the plan for `batch` images. Plans are made on first use.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a batch of 0, or one so large that a buffer cannot be addressed.
    fn plan(&self, batch: usize) -> Result<Arc<Plan>>;

    /// Returns memory of `bytes` bytes for an input, which a GPU can copy from.
    ///
    /// The memory is cut from a buffer of `capacity` bytes, so that a later, larger batch can use the buffer again.
    ///
    /// # Errors
    ///
    /// The host is out of memory that can be page-locked.
    fn stage(&self, bytes: usize, capacity: usize) -> Result<Staging>;

    /// Returns pinned memory for decoded images. `None` if the GPUs do not resize images.
    fn slabs(&self) -> Option<Arc<Slabs>> {
        None
    }

    /// Reserves the memory for a run of `plan`. Among replicas, one near the memory `near` is preferred.
    ///
    /// # Errors
    ///
    /// [`hip::Error::OutOfMemory`](crate::hip::Error::OutOfMemory) if the device has no memory for one more run. Retry once another run has
    /// finished.
    fn reserve(self: Arc<Self>, plan: &Arc<Plan>, near: Option<&Staging>) -> Result<Box<dyn Reservation>>;

    /// Returns how runs were executed so far.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Returns the replicas. Empty if the executor is not a set of replicas.
    fn replicas(&self) -> &[Arc<dyn Executor>] {
        &[]
    }

    /// Takes part in the runs of rank 0 until its process ends.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] if a rank has failed; [`Error::Argument`] if rank 0 is not in another process.
    fn follow(&self) -> Result<()> {
        let reason = "is one process's, and follows no other";
        Err(Error::argument("session", reason))
    }
}

/// Devices of an executor, and the inputs that it accepts.
#[derive(Clone, Debug)]
pub struct ExecutorInfo {
    /// GPUs, in the order of ranks or stages. Empty for the CPU.
    pub devices: Vec<Device>,
    /// The graph without its constants, of which the executor has copies.
    pub graph: Arc<Graph>,
    /// Dtype of the activations in memory. Always f32 on the CPU, for any dtype of products.
    pub activations: DType,
    /// Number of batches in flight that keeps the devices busy while one more is copied in.
    pub in_flight: usize,
    /// True if a GPU resizes images.
    pub resizes: bool,
    /// Bytes of weights on each device.
    pub weight_bytes: Vec<usize>,
    /// Threads for work on the host.
    pub host: HostThreads,
    /// Controls whether runs replay captured graphs.
    pub graphs: GraphSwitch,
}

/// Statistics of the runs of an executor.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Use of captured graphs. `None` on the CPU.
    pub replays: Option<Replays>,
    /// Images by replica. Empty if the executor is not a set of replicas.
    pub images: Vec<u64>,
}

/// Memory for a run, reserved on its executor.
pub trait Reservation: Send {
    /// Starts the run. Returns when all work is submitted to a GPU; on the CPU, when the run has finished.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an input is missing, unknown, or does not fit the plan. [`Error::Op`] or [`Error::Step`], naming the node,
    /// if a step cannot be submitted.
    fn submit(self: Box<Self>, inputs: Inputs<'_>, submission: Submission) -> Result<Box<dyn PendingRun>>;
}

/// A submitted run.
pub trait PendingRun: Send {
    /// Returns true once the device has finished the run. Does not wait.
    ///
    /// # Errors
    ///
    /// The error of the device's work.
    fn is_done(&self) -> Result<bool>;

    /// Returns the event at which a GPU finishes the run. `None` if the run has no such event.
    fn end(&self) -> Option<Event> {
        None
    }

    /// Waits for the run.
    ///
    /// # Errors
    ///
    /// The error of the device's work.
    fn finish(self: Box<Self>, options: FinishOptions<'_>) -> Result<Finished>;
}

/// Options of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// Measure each phase on the device.
    pub timed: bool,
    /// Block instead of spinning, to leave the core to decode threads.
    pub sleeps: bool,
    /// Results that are copied to the host.
    pub download: Download,
}

/// Results that a run copies to the host. The CPU returns all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Download {
    /// All results.
    #[default]
    All,
    /// All results except logits.
    NoLogits,
    /// All results except logits. All results stay on the device for [`FinishOptions::keep`].
    KeptLogits,
    /// Logits and embeddings, to check that a replay wrote them. All results stay on the device for [`FinishOptions::keep`].
    Checked,
}

/// Destinations of a run's results, beside its [`Finished`].
#[derive(Default)]
pub struct FinishOptions<'a> {
    /// Receives the time of each phase. Requires [`Submission::timed`].
    pub timing: Option<&'a mut Timing>,
    /// Receives each result on the device. Requires [`Download::Checked`] or [`Download::KeptLogits`].
    pub keep: Option<&'a mut KeepResult<'a>>,
}

impl fmt::Debug for FinishOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FinishOptions")
            .field("timing", &self.timing)
            .field("keep", &self.keep.is_some())
            .finish()
    }
}

/// Called with the index of an output in the plan and its memory, before another run reuses that memory.
pub type KeepResult<'a> = dyn FnMut(usize, Operand<'_>) -> Result<()> + 'a;

/// Results of a run.
#[derive(Debug)]
pub struct Finished {
    /// The results on the host.
    pub outputs: RunOutputs,
    /// The memory that the input was staged in.
    pub staging: Option<Staging>,
}
