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
use crate::error::Result;
use crate::exec::slabs::Images;
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::hip::{Device, DeviceBuffer, Replay, Stream};

/// Maximum number of plans that a context remembers. There is one plan per batch size.
const MAX_PLANS: usize = 16;

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
    captured: Option<Captured>,
}

/// The device memory of a context.
#[derive(Debug)]
pub(super) struct Memory {
    /// The inputs, at their offsets in the plan.
    pub(super) input: DeviceBuffer<u8>,
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
}

impl ExecutionContext {
    /// Creates a context for `plan`, whose inputs have `input` bytes. The context of a rank uses the communicator's stream. `states` is the
    /// stream of the graph's parameters and states, if there are any.
    pub(super) fn new(
        device: &Device,
        plan: &Plan,
        input: usize,
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
        let Self {
            memory, seen, stream, ..
        } = self;
        for (buffer, bytes) in [
            (&mut memory.input, input),
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

    /// Returns true if `plan` has run in this context before, and records that it has.
    pub(super) fn has_seen(&mut self, plan: &Plan) -> bool {
        if self.find(plan).is_some() {
            return true;
        }
        if self.seen.len() == MAX_PLANS {
            self.seen.remove(0);
        }
        self.seen.push(Seen {
            graph: plan.graph().clone(),
            batch: plan.batch(),
            captured: None,
        });
        false
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
        let is = |seen: &&mut Seen| seen.batch == plan.batch() && Arc::ptr_eq(&seen.graph, plan.graph());
        self.seen.iter_mut().find(is)
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
    pub(super) fn take(&self) -> Option<ExecutionContext> {
        self.0.lock().pop()
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
