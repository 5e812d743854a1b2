//! The GPU's executor: f32, f16 or bf16 on any provider of HIP, through [`crate::hip`].
//!
//! Weights lie in one allocation, activations in the arena that the plan laid out. A step becomes calls ([`lower`]):
//! linear layers by hipBLASLt or rocBLAS, the patch embedding and attention by MIOpen if that was measured to be faster, as
//! [selected](super::select); everything else, and these by default, by the crate's own kernels.
//!
//! A run is submitted as a whole and waited for later, so that several can be in flight. Each has an [`ExecutionContext`] of
//! its own, with a stream that computes and then copies the results to pinned memory. One more stream copies the inputs of all
//! contexts, from pinned memory too; events order the copy after the context's previous work and before its next. What the
//! caller has in pageable memory is [staged](staging) in pieces. Images that the device resizes are copied as decoded, by
//! the context's own stream.
//!
//! The second run of a plan on a context is captured as a graph. Later runs replay it, if the replay gave the same bytes as
//! the steps did ([`Replay`]), and some of them are checked ([`GraphMode`]).

mod clock;
mod constants;
mod context;
mod graphs;
mod guarded;
mod libraries;
mod lower;
mod miopen;
mod pipeline;
mod preprocess;
mod regions;
mod report;
mod staging;
mod steps;
mod tensor;
#[cfg(test)]
mod tests;
mod tune;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ndarray::Array2;
use parking_lot::{Mutex, MutexGuard};
use rayon::ThreadPool;

use self::clock::Clock;
use self::constants::Constants;
pub(crate) use self::constants::{HostConstants, append, unpack};
use self::context::{ExecutionContext, Memory, PinnedPool};
use self::libraries::Libraries;
use self::lower::unit;
use self::preprocess::DeviceResize;
pub use self::preprocess::HipPreprocess;
use self::staging::Pieces;
use self::steps::Submitted;
use super::select::{HIPBLASLT, Key, SelectOptions, Selection, Store};
use crate::error::{Error, Result};
use crate::graph::inspection::{DeviceMemory, Region};
use crate::graph::plan::{BufferId, Plan};
use crate::graph::{Graph, OutputKind, ValueId, matrix};
use crate::hip::{self, Device, Dnn, Event, Operand, Pending, PinnedBuffer, Stream};
use crate::image::{Preprocess, RgbImage};
use crate::kernels::{KernelCall, Kernels, Unit};
use crate::tensor::DType;

pub use self::clock::{Stage, StageObserver};
pub use self::graphs::{GraphMode, Replays};
pub use self::pipeline::PipelineExecutor;
pub(super) use self::pipeline::{PipelineReserved, PipelineRun};
use self::tensor::Rank;
pub use self::tensor::TensorExecutor;
pub(super) use self::tensor::{TensorFinished, TensorRun};
pub use self::tune::Tuned;

/// Runs plans of one graph on a GPU. Can be shared: any number of threads may run it at once, each on a stream of its
/// own.
pub struct HipExecutor {
    device: Device,
    dtype: DType,
    graphs: GraphMode,
    resize: Option<DeviceResize>,
    kernels: Kernels,
    constants: Constants,
    selection: Selection,
    /// What it is among the ranks of a tensor-parallel model.
    rank: Option<Rank>,
    /// Copies the inputs of all contexts.
    copier: Stream,
    /// Execution contexts that no run is using.
    contexts: Mutex<Vec<ExecutionContext>>,
    /// Pinned memory for whole inputs that no run is using.
    inputs: Mutex<PinnedPool>,
    /// The same, for pieces of inputs.
    pieces: Pieces,
    fallback: OnceLock<String>,
    replayed_runs: AtomicU64,
    eager_runs: AtomicU64,
    checked_runs: AtomicU64,
    recomputed_runs: AtomicU64,
}

/// A context with the memory for a run of a plan.
pub(crate) struct Reserved<P> {
    plan: P,
    context: ExecutionContext,
}

impl<P> Reserved<P> {
    pub(super) fn plan(&self) -> &P {
        &self.plan
    }
}

/// What a run takes its input from.
pub(super) enum Feed<'a> {
    /// The plan's input, in pinned memory.
    Pinned(PinnedBuffer<u8>),
    /// The plan's input, in any memory.
    Pageable(&'a [u8]),
    /// Decoded images, which the device resizes.
    Images(&'a [&'a RgbImage]),
    /// What the stage before left, on its device.
    Activations(Operand<'a>),
}

/// How a run is carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Submission {
    /// Each stage is timed.
    pub(crate) timed: bool,
    /// Whoever waits for the run sleeps, and leaves the core to others, such as threads that decode.
    pub(crate) sleeps: bool,
}

/// Pinned memory in copies to the device.
type Uploaded = Pending<Vec<PinnedBuffer<u8>>>;

/// What a run leaves.
pub(super) struct Finished {
    pub(super) outputs: Vec<(OutputKind, Array2<f32>)>,
    /// The pinned memory that it was fed with, or staged in.
    pub(super) memory: Vec<PinnedBuffer<u8>>,
}

/// A run that was submitted. Dropping it waits for its copies.
pub(crate) struct Running<P> {
    uploads: VecDeque<Uploaded>,
    downloads: Vec<Pending<PinnedBuffer<u8>>>,
    /// What provided the input.
    entry: Stage<'static>,
    /// The run's end, for a thread that sleeps.
    end: Option<Event>,
    clock: Option<Clock>,
    submitted: Submitted,
    plan: P,
    context: ExecutionContext,
}

impl<P> Running<P> {
    pub(super) fn plan(&self) -> &P {
        &self.plan
    }

    /// Where the device has done with it.
    pub(super) fn end(&self) -> Option<Event> {
        self.downloads.last().map(|last| last.event().clone())
    }
}

impl<P: Deref<Target = Plan>> Running<P> {
    /// What the next stage of the model reads, if there is one.
    fn boundary(&self) -> Option<Operand<'_>> {
        let outputs = self.plan.outputs().iter();
        let (_, _, id) = outputs.rev().find(|(kind, ..)| *kind == OutputKind::Boundary)?;
        let buffer = self.plan.buffer(*id);
        let arena = self.context.memory.arena.reading();
        // The context's arena has at least the plan's size.
        arena.part(buffer.offset..buffer.offset + buffer.bytes).ok()
    }
}

impl HipExecutor {
    /// An executor for `graph`, which has been [optimised](crate::graph::optimize), that computes in `dtype`. Compiles
    /// the kernels, if there are none for the device, and uploads the weights.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no computing in `dtype`; the kernels cannot be compiled or loaded, a library is
    /// missing, or the weights do not fit.
    pub fn new(graph: &Graph, device: &Device, dtype: DType) -> Result<Self> {
        Self::with_constants(graph, &HostConstants::new(graph, dtype), device, dtype)
    }

    /// As [`new`](Self::new), with the graph's constants in `dtype`, which executors on several devices share.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn with_constants(
        graph: &Graph,
        constants: &HostConstants,
        device: &Device,
        dtype: DType,
    ) -> Result<Self> {
        if dtype == DType::U8 {
            return Err(Error::argument("dtype", "a GPU computes in f32, f16 or bf16"));
        }
        let units = graph.nodes().iter().filter_map(|node| unit(&node.op));
        // Of attention that is not fused on request.
        let softmax = (!graph.optimizations().fused_attention).then(|| Unit::of("softmax"));
        let kernels = Kernels::load(device, dtype, units.chain(softmax))?;
        let copier = device.stream()?;
        let hipblaslt = Libraries::hipblaslt_version(&copier);
        let (hipblaslt, no_hipblaslt) = match hipblaslt {
            Ok(version) => (Some(version), None),
            Err(reason) => (None, Some(reason)),
        };
        let key = Key {
            device: device.properties().name.clone(),
            arch: device.properties().arch().to_owned(),
            libraries: String::new(),
        };
        let miopen = || Dnn::version(device).ok();
        let key = key.with(HIPBLASLT, hipblaslt);
        let selection = Selection::new(SelectOptions::default(), key, no_hipblaslt, miopen);
        Ok(Self {
            selection,
            constants: Constants::upload(constants, &copier)?,
            device: device.clone(),
            dtype,
            graphs: GraphMode::default(),
            rank: None,
            resize: None,
            kernels,
            copier,
            contexts: Mutex::default(),
            inputs: Mutex::default(),
            pieces: Pieces::default(),
            fallback: OnceLock::new(),
            replayed_runs: AtomicU64::new(0),
            eager_runs: AtomicU64::new(0),
            checked_runs: AtomicU64::new(0),
            recomputed_runs: AtomicU64::new(0),
        })
    }

    /// Makes it a rank of a tensor-parallel model, which runs one plan at a time.
    pub(super) fn set_rank(&mut self, rank: Rank) {
        self.rank = Some(rank);
        self.contexts().clear();
    }

    /// What all ranks of a tensor-parallel model find true.
    fn agree(&self, mine: bool) -> bool {
        self.rank.as_ref().map_or(mine, |rank| rank.agreement.agree(mine))
    }

    /// Sets whether runs replay captured graphs.
    pub fn set_graphs(&mut self, mode: GraphMode) {
        self.graphs = mode;
    }

    /// Sets how kernels are selected.
    pub fn set_selection(&mut self, options: SelectOptions) {
        self.selection.set_options(options);
        // Contexts have prepared what was selected before.
        self.contexts().clear();
    }

    /// Sets what counts as measured on this machine, in place of what the user's cache has.
    pub fn set_tuned(&mut self, tuned: Store) {
        self.selection.set_tuned(tuned);
        self.contexts().clear();
    }

    /// How kernels are selected.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Makes the device resize images to the model's input size, by `rule`.
    ///
    /// # Errors
    ///
    /// The kernels cannot be compiled or loaded.
    pub fn set_resize(&mut self, rule: &Preprocess) -> Result<()> {
        self.resize = Some(DeviceResize::load(rule, &self.device)?);
        // Contexts keep the rule that they resized by.
        self.contexts().clear();
        Ok(())
    }

    /// Whether the device resizes images.
    pub fn resizes(&self) -> bool {
        self.resize.is_some()
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The dtype it computes in.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes that the weights take on the device.
    pub fn weight_bytes(&self) -> usize {
        self.constants.bytes()
    }

    /// How the runs so far were carried out.
    pub fn replays(&self) -> Replays {
        Replays {
            replayed_runs: self.replayed_runs.load(Ordering::Relaxed),
            eager_runs: self.eager_runs.load(Ordering::Relaxed),
            checked_runs: self.checked_runs.load(Ordering::Relaxed),
            recomputed_runs: self.recomputed_runs.load(Ordering::Relaxed),
            fallback: self.fallback.get().cloned(),
        }
    }

    /// Where the weights are on the device, and the memory that a run of `plan` gets.
    ///
    /// # Errors
    ///
    /// There is no memory for a run.
    pub fn memory(&self, plan: &Plan) -> Result<DeviceMemory> {
        let reserved = self.reserve(plan)?;
        let region = |buffer: Operand<'_>| Region {
            address: buffer.address(),
            bytes: buffer.bytes(),
        };
        let Memory {
            input,
            arena,
            scratch,
        } = &reserved.context.memory;
        let parameter = |(&id, &address): (&ValueId, &u64)| {
            let elements: usize = plan.graph().value(id).shape.iter().product();
            let bytes = elements * self.dtype.size();
            (id, Region { address, bytes })
        };
        let memory = DeviceMemory {
            device: self.device.name().to_owned(),
            dtype: self.dtype,
            weights: region(self.constants.reading()),
            arena: region(arena.reading()),
            scratch: region(scratch.reading()),
            input: region(input.reading()),
            parameters: self.constants.addresses().iter().map(parameter).collect(),
        };
        self.contexts().push(reserved.context);
        Ok(memory)
    }

    /// Pinned memory for an input of `bytes` bytes.
    pub(super) fn stage(&self, bytes: usize) -> Result<PinnedBuffer<u8>> {
        // The lock is released before the driver is asked for memory.
        let unused = self.inputs.lock().reuse(bytes)?;
        match unused {
            Some(buffer) => Ok(buffer),
            None => self.pinned(bytes),
        }
    }

    /// Pinned memory for an input of `bytes` bytes that the caller keeps; zero.
    pub(super) fn pinned(&self, bytes: usize) -> Result<PinnedBuffer<u8>> {
        Ok(self.device.pinned(bytes)?)
    }

    /// Takes pinned memory back, for the inputs of later runs.
    pub(super) fn keep(&self, memory: Vec<PinnedBuffer<u8>>) {
        let (pieces, inputs): (Vec<_>, Vec<_>) = memory.into_iter().partition(staging::is_piece);
        self.pieces.keep(pieces);
        let mut pool = self.inputs.lock();
        inputs.into_iter().for_each(|input| pool.keep(input));
    }

    /// A context with all the device memory that a run of `plan` needs.
    pub(super) fn reserve<P: Deref<Target = Plan>>(&self, plan: P) -> Result<Reserved<P>> {
        if plan.dtype() != self.dtype {
            let reason = format!(
                "the plan requires {}, the executor has {}",
                plan.dtype(),
                self.dtype
            );
            return Err(Error::argument("dtype", reason));
        }
        let context = match self.context(&plan) {
            Err(Error::Hip(hip::Error::OutOfMemory { .. })) => {
                // Idle contexts may hold the missing memory.
                let idle = std::mem::take(&mut *self.contexts());
                drop(idle);
                self.context(&plan)
            }
            context => context,
        }?;
        Ok(Reserved { plan, context })
    }

    fn context(&self, plan: &Plan) -> Result<ExecutionContext> {
        let input = plan.input_bytes();
        let idle = self.contexts().pop();
        let mut context = match idle {
            Some(mut context) => {
                context.fit(plan, input)?;
                context
            }
            None => {
                let comm = self.rank.as_ref().map(|rank| &rank.comm);
                ExecutionContext::new(&self.device, plan, input, comm)?
            }
        };
        context.libraries.open(plan, &self.selection)?;
        Ok(context)
    }

    /// Submits a run; `threads` copy input that is in pageable memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the feed is not what the plan takes, or if there is no rule to resize images by;
    /// [`Error::Graph`], naming the node and the device, if a step cannot be submitted.
    pub(super) fn submit<P: Deref<Target = Plan>>(
        &self,
        reserved: Reserved<P>,
        feed: Feed<'_>,
        threads: &ThreadPool,
        how: Submission,
    ) -> Result<Running<P>> {
        let Reserved { plan, mut context } = reserved;
        // A context with an error is dropped.
        let mut clock = how.timed.then(Clock::default);
        let entry = match feed {
            Feed::Images(_) => Stage::Resize,
            _ => Stage::Upload,
        };
        let uploads = self.feed(&mut context, &plan, feed, threads, &mut clock)?;
        let submitted = self.compute(&mut context, &plan, &mut clock)?;
        let downloads = self.download(&mut context, &plan)?;
        if let Some(clock) = &mut clock {
            clock.tick(&context.stream)?;
        }
        let end = how.sleeps.then(|| context.stream.mark_blocking()).transpose()?;
        Ok(Running {
            uploads,
            downloads,
            entry,
            end,
            clock,
            submitted,
            plan,
            context,
        })
    }

    /// Waits for a run.
    pub(super) fn finish<P: Deref<Target = Plan>>(
        &self,
        running: Running<P>,
        observer: Option<&mut StageObserver<'_>>,
    ) -> Result<Finished> {
        let Running {
            uploads,
            downloads,
            entry,
            end,
            clock,
            submitted,
            plan,
            mut context,
        } = running;
        if let Some(end) = end {
            end.synchronize()?;
        }
        let mut results: Vec<_> = downloads
            .into_iter()
            .map(Pending::wait)
            .collect::<hip::Result<_>>()?;
        if let Submitted::Replay(run) = submitted {
            self.check_replay(&mut context, &plan, run, &mut results)?;
        }
        let mut outputs = Vec::with_capacity(results.len());
        for ((kind, value, id), bytes) in self::results(&plan).zip(results) {
            let name = &plan.graph().value(value).name;
            let values = unpack(&bytes, self.dtype);
            context.results.keep(bytes);
            let matrix = matrix(&plan.buffer(id).shape, values);
            outputs.push((kind, matrix.map_err(|e| Error::graph(name, e))?));
        }
        let mut memory = Vec::new();
        for upload in uploads {
            memory.extend(upload.wait()?);
        }
        if let (Some(clock), Some(observer)) = (clock, observer) {
            clock.tell(&plan, entry, observer)?;
        }
        self.contexts().push(context);
        Ok(Finished { outputs, memory })
    }

    /// Submits the copy of the input, or the resizing that produces it.
    fn feed(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        feed: Feed<'_>,
        threads: &ThreadPool,
        clock: &mut Option<Clock>,
    ) -> Result<VecDeque<Uploaded>> {
        let expect = |bytes: usize| match bytes == plan.input_bytes() {
            true => Ok(()),
            false => {
                let reason = format!("has {bytes} bytes, expected {}", plan.input_bytes());
                Err(Error::argument("input", reason))
            }
        };
        let stream = match feed {
            Feed::Pinned(_) | Feed::Pageable(_) => self.copier.clone(),
            Feed::Images(_) | Feed::Activations(_) => context.stream.clone(),
        };
        let mut tick = || clock.as_mut().map_or(Ok(()), |clock| clock.tick_input(&stream));
        let uploads = match feed {
            Feed::Pinned(input) => {
                expect(input.len())?;
                tick()?;
                let mut uploads = context.memory.input.uploads_on(&stream)?;
                uploads.push(0, input)?;
                VecDeque::from([uploads.finish()?])
            }
            Feed::Pageable(input) => {
                expect(input.len())?;
                tick()?;
                let uploads = context.memory.input.uploads_on(&stream)?;
                let mut submitted = VecDeque::new();
                let with = (&self.device, threads);
                self.pieces.upload(uploads, &[input], with, &mut submitted)?;
                submitted
            }
            Feed::Activations(source) => {
                expect(source.bytes())?;
                tick()?;
                context.memory.input.copy_part_from_peer(0, source)?;
                VecDeque::new()
            }
            Feed::Images(images) => {
                let Some(resize) = &self.resize else {
                    let reason = "the executor has no rule to resize them by";
                    return Err(Error::argument("images", reason));
                };
                resize.check(plan, images.len())?;
                tick()?;
                context.resize(resize, images, &self.pieces, threads)?
            }
        };
        tick()?;
        Ok(uploads)
    }

    fn download(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
    ) -> Result<Vec<Pending<PinnedBuffer<u8>>>> {
        let ExecutionContext { memory, results, .. } = context;
        let download = |(_, _, id): (OutputKind, _, _)| {
            let buffer = plan.buffer(id);
            let target = results.take(buffer.bytes, &self.device)?;
            Ok(memory.arena.download(buffer.offset, target)?)
        };
        self::results(plan).map(download).collect()
    }

    fn contexts(&self) -> MutexGuard<'_, Vec<ExecutionContext>> {
        self.contexts.lock()
    }
}

/// The results that go to the host: all but what the next stage reads.
fn results(plan: &Plan) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    let outputs = plan.outputs().iter().copied();
    outputs.filter(|(kind, ..)| *kind != OutputKind::Boundary)
}

impl fmt::Debug for HipExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HipExecutor")
            .field("device", &self.device)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}
