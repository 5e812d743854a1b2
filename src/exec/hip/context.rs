//! Device state of a run: a stream, the libraries on it, memory, and captured graphs.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::ThreadPool;

use super::graphs::Captured;
use super::libraries::Libraries;
use super::lower::{counter_bytes, scratch_bytes};
use super::preprocess::{DeviceResize, HipPreprocess};
use super::rank::RankStream;
use super::results::boundary;
use super::staging::{Pieces, Uploaded};
use super::unified::{Buffers, HostResults, WrittenResults};
use crate::error::Result;
use crate::exec::slabs::Images;
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::hip::{Device, DeviceAddress, DeviceBuffer, Event, Lent, Operand, Replay, Stream};

/// Maximum number of plans that a context remembers. There is one plan per batch size.
const MAX_PLANS: usize = 16;

/// Maximum number of plans that a context remembers if kernels read inputs in host memory. A plan counts once for each input memory.
const MAX_PLANS_IN_HOST_MEMORY: usize = 64;

/// Device state of one run at a time. Reused between runs; the memory grows to the largest plan so far.
#[derive(Debug)]
pub(super) struct ExecutionContext {
    pub(super) stream: Stream,
    pub(super) libraries: Libraries,
    pub(super) memory: Memory,
    /// Set once the context has resized images.
    resize: Option<HipPreprocess>,
    seen: Vec<Seen>,
}

/// A plan, and a context with the memory for a run of it.
pub(super) struct Reserved {
    pub(super) plan: Arc<Plan>,
    pub(super) context: ExecutionContext,
}

/// A plan that has run on this context's memory.
#[derive(Debug)]
struct Seen {
    /// The graph and the batch size identify the plan, since the dtype is the executor's.
    graph: Arc<Graph>,
    batch: usize,
    /// Address of the inputs.
    input: DeviceAddress,
    captured: Option<Captured>,
}

/// The device memory of a context.
#[derive(Debug)]
pub(super) struct Memory {
    /// The inputs, at their offsets in the plan, unless kernels read them in host memory.
    pub(super) input: DeviceBuffer<u8>,
    /// The inputs of the current run in host memory.
    pub(super) host_input: Option<Lent<u8>>,
    /// Results in host memory. `None` if all are in the arena.
    pub(super) host_results: Option<HostResults>,
    /// Target of the input's copy if contexts share the compute stream. The separate memory lets the copy, on its own stream, start before
    /// other runs finish.
    pub(super) ahead: Option<DeviceBuffer<u8>>,
    /// Copy of the activations for the next stage if contexts share the compute stream, which continues during the copy to the next GPU.
    pub(super) handed_on: Option<DeviceBuffer<u8>>,
    pub(super) arena: DeviceBuffer<u8>,
    pub(super) scratch: DeviceBuffer<u8>,
    /// Counters of the blocks of a launch, which are 0 between launches.
    pub(super) counters: DeviceBuffer<u8>,
}

/// Returns the bytes of device memory of a run of `plan`, if it is the only run at a time: its arena, its inputs and those of the next run,
/// and the scratch memory and counters of kernels. Weights, parameters and states are not included.
pub fn run_bytes(plan: &Plan) -> usize {
    plan.arena_bytes() + 2 * plan.input_bytes() + scratch_bytes(plan) + counter_bytes(plan)
}

impl Memory {
    /// Returns the buffer that inputs are copied to. Runs that share the stream copy their inputs ahead, so that the copy does not wait for
    /// other runs.
    pub(super) fn input_target(&mut self) -> &mut DeviceBuffer<u8> {
        self.ahead.as_mut().unwrap_or(&mut self.input)
    }

    /// Returns the inputs of the current run.
    pub(super) fn inputs(&self) -> Operand<'_> {
        match &self.host_input {
            Some(input) => input.reading(),
            None => self.input.reading(),
        }
    }

    /// Returns the buffers of plans, to read.
    pub(super) fn buffers(&self) -> Buffers<'_> {
        Buffers {
            arena: self.arena.reading(),
            results: self.host_results.as_ref().map(HostResults::reading),
        }
    }

    /// Returns the buffers of plans, to write.
    pub(super) fn buffers_mut(&mut self) -> Buffers<'_> {
        Buffers {
            arena: self.arena.writing(),
            results: self.host_results.as_mut().map(HostResults::writing),
        }
    }
}

impl ExecutionContext {
    /// Creates a context for `plan`, with `input` bytes of device memory for its inputs. If `in_host`, kernels write results to host memory.
    /// The context of a rank uses the communicator's stream. `states` is the stream of the graph's parameters and states, if there are any.
    pub(super) fn new(
        device: &Device,
        plan: &Plan,
        (input, in_host): (usize, bool),
        on: Option<&RankStream>,
        states: Option<&Stream>,
    ) -> Result<Self> {
        let (stream, several) = match (on, states) {
            (Some(on), _) => (on.comm.stream().clone(), on.several),
            (None, Some(stream)) => (stream.clone(), true),
            (None, None) => (device.stream()?, false),
        };
        let apart = |bytes: Option<usize>| -> Result<Option<DeviceBuffer<u8>>> {
            let bytes = bytes.filter(|_| several);
            bytes
                .map(|bytes| Ok(device.stream()?.allocate(bytes)?))
                .transpose()
        };
        Ok(Self {
            libraries: Libraries::new(&stream, on),
            memory: Memory {
                input: stream.allocate(input)?,
                host_input: None,
                host_results: in_host.then(|| HostResults::new(&stream, plan)).transpose()?,
                ahead: apart(Some(input))?,
                handed_on: apart(boundary_bytes(plan))?,
                arena: stream.allocate(plan.arena_bytes())?,
                scratch: stream.allocate(scratch_bytes(plan))?,
                counters: stream.zeroed(counter_bytes(plan))?,
            },
            resize: None,
            seen: Vec::new(),
            stream,
        })
    }

    /// Grows the memory if it is too small for `plan`.
    pub(super) fn fit(&mut self, plan: &Plan, input: usize) -> Result<()> {
        self.fit_input(input)?;
        let Self {
            memory, seen, stream, ..
        } = self;
        for (buffer, bytes) in [
            (&mut memory.arena, plan.arena_bytes()),
            (&mut memory.scratch, scratch_bytes(plan)),
        ] {
            if buffer.bytes() < bytes {
                // Captured graphs use the memory that is replaced.
                seen.clear();
                *buffer = stream.allocate(0)?;
                *buffer = stream.allocate(bytes)?;
            }
        }
        if let Some(results) = &mut memory.host_results
            && results.fit(stream, plan)?
        {
            seen.clear();
        }
        if memory.counters.bytes() < counter_bytes(plan) {
            seen.clear();
            memory.counters = stream.zeroed(counter_bytes(plan))?;
        }
        for (buffer, bytes) in [
            (&mut memory.ahead, Some(input)),
            (&mut memory.handed_on, boundary_bytes(plan)),
        ] {
            if let (Some(buffer), Some(bytes)) = (buffer, bytes)
                && buffer.bytes() < bytes
            {
                let stream = buffer.stream().clone();
                *buffer = stream.allocate(0)?;
                *buffer = stream.allocate(bytes)?;
            }
        }
        Ok(())
    }

    /// Grows the device memory of the inputs to `bytes` bytes.
    pub(super) fn fit_input(&mut self, bytes: usize) -> Result<()> {
        if self.memory.input.bytes() < bytes {
            // Captured graphs use the memory that is replaced.
            self.seen.clear();
            self.memory.input = self.stream.allocate(0)?;
            self.memory.input = self.stream.allocate(bytes)?;
        }
        Ok(())
    }

    /// Returns the results that the current run wrote to host memory, with an event after the run.
    pub(super) fn written_results<'a>(&'a self, end: Option<&'a Event>) -> WrittenResults<'a> {
        self.memory.host_results.as_ref().zip(end)
    }

    /// Submits the resizing of `images` into the input buffer.
    pub(crate) fn resize(
        &mut self,
        resize: &DeviceResize,
        images: Images<'_>,
        pieces: &Pieces,
        threads: &ThreadPool,
    ) -> Result<VecDeque<Uploaded>> {
        let on_stream = self
            .resize
            .get_or_insert_with(|| HipPreprocess::on(&self.stream, resize));
        on_stream.enqueue(images, &mut self.memory.input, pieces, threads)
    }

    /// Returns true if `plan` has run in this context before, on inputs at any address, and records that it has.
    pub(super) fn has_seen(&mut self, plan: &Plan) -> bool {
        if self.find(plan).is_some() {
            return true;
        }
        let has_run = self.seen.iter().any(|seen| seen.is_of(plan));
        let most = match &self.memory.host_input {
            Some(_) => MAX_PLANS_IN_HOST_MEMORY,
            None => MAX_PLANS,
        };
        if self.seen.len() >= most {
            self.seen.remove(0);
        }
        self.seen.push(Seen {
            graph: plan.graph().clone(),
            batch: plan.batch(),
            input: self.memory.inputs().address(),
            captured: None,
        });
        has_run
    }

    /// Returns the captured steps of `plan`, if there are any.
    pub(super) fn captured(&mut self, plan: &Plan) -> Option<&mut Captured> {
        self.find(plan)?.captured.as_mut()
    }

    pub(super) fn keep_replay(&mut self, plan: &Plan, replay: Replay) {
        if let Some(seen) = self.find(plan) {
            seen.captured = Some(Captured::new(replay));
        }
    }

    fn find(&mut self, plan: &Plan) -> Option<&mut Seen> {
        let input = self.memory.inputs().address();
        self.seen.iter_mut().find(|seen| seen.is(plan, input))
    }
}

impl Seen {
    fn is(&self, plan: &Plan, input: DeviceAddress) -> bool {
        self.input == input && self.is_of(plan)
    }

    fn is_of(&self, plan: &Plan) -> bool {
        self.batch == plan.batch() && Arc::ptr_eq(&self.graph, plan.graph())
    }
}

/// Returns the bytes that the next stage of the model reads, if there is one.
fn boundary_bytes(plan: &Plan) -> Option<usize> {
    boundary(plan).map(|id| plan.buffer(id).bytes)
}

/// Contexts that no run uses.
#[derive(Debug, Default)]
pub(super) struct Contexts(Mutex<Vec<ExecutionContext>>);

impl Contexts {
    /// Takes a context for a run of `plan`. Prefers one that has run it on the inputs at `input`, to replay its captured graph.
    pub(super) fn take(&self, plan: &Plan, input: Option<DeviceAddress>) -> Option<ExecutionContext> {
        let mut idle = self.0.lock();
        let has_run = |context: &ExecutionContext| {
            input.is_some_and(|input| context.seen.iter().any(|seen| seen.is(plan, input)))
        };
        match idle.iter().rposition(has_run) {
            Some(index) => Some(idle.remove(index)),
            None => idle.pop(),
        }
    }

    pub(super) fn keep(&self, context: ExecutionContext) {
        self.0.lock().push(context);
    }

    /// Frees the contexts and their memory.
    pub(super) fn clear(&self) {
        // Release the lock before the driver frees the memory.
        let idle = std::mem::take(&mut *self.0.lock());
        drop(idle);
    }
}
