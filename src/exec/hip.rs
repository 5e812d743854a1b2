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

mod calls;
mod clock;
mod constants;
mod context;
mod direct;
mod feed;
mod graphs;
mod guarded;
mod hipsparselt;
mod libraries;
mod lower;
mod miopen;
mod pipeline;
mod preprocess;
mod regions;
mod report;
mod reserve;
mod run;
mod sparse;
mod staging;
mod steps;
mod tensor;
#[cfg(test)]
mod tests;
mod tune;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use self::clock::Anchor;
use self::constants::Constants;
pub(crate) use self::constants::{HostConstants, append, unpack};
use self::context::{ExecutionContext, Memory, PinnedPool};
pub(super) use self::feed::Feed;
use self::feed::Uploaded;
use self::hipsparselt::Hipsparselt;
use self::libraries::Libraries;
use self::lower::{SparseForm, attention_units, rounding_units, unit};
use self::preprocess::DeviceResize;
pub use self::preprocess::HipPreprocess;
pub(crate) use self::sparse::SparseWeights;
use self::staging::Pieces;
use super::select::{HIPBLASLT, HIPSPARSELT, Key, SelectOptions, Selection, Sparse, Store};
use super::slabs::Slabs;
use crate::error::{Error, Result};
use crate::graph::inspection::{DeviceMemory, Region};
use crate::graph::plan::Plan;
use crate::graph::{Float8, Graph, ValueId};
use crate::hip::{self, Device, Dnn, Event, Operand, Stream};
use crate::image::Preprocess;
use crate::kernels::{KernelCall, Kernels, Unit, sparse_bytes};
use crate::ops::{Linear, Op, Rounding};
use crate::tensor::DType;
use crate::timeline::{self, Activity};

pub use self::calls::TimedCall;
pub use self::clock::{Stage, StageObserver};
pub use self::direct::{PeerAllReduce, PeerNorm, PeerSum};
pub use self::graphs::{GraphMode, Replays};
pub use self::pipeline::PipelineExecutor;
pub(super) use self::pipeline::{PipelineReserved, PipelineRun};
pub(crate) use self::reserve::Reserved;
use self::run::results;
pub(super) use self::run::{Finished, KeepResult};
pub(crate) use self::run::{Running, Submission};
pub(crate) use self::tensor::Processes;
use self::tensor::Rank;
pub use self::tensor::TensorExecutor;
pub(super) use self::tensor::{TensorFinished, TensorRun};
pub use self::tune::{Dense, Tuned};

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
    /// Of a stage of a pipeline, where the run ends that was the last to be submitted; `None` elsewhere, where runs share the GPU.
    turn: Option<Mutex<Option<Event>>>,
    /// Copies the inputs of all contexts.
    copier: Stream,
    /// Execution contexts that no run is using.
    contexts: Mutex<Vec<ExecutionContext>>,
    /// Pinned memory for whole inputs that no run is using.
    inputs: Mutex<PinnedPool>,
    /// The same, for pieces of inputs.
    pieces: Pieces,
    /// The same, for decoded images.
    slabs: Arc<Slabs>,
    /// Why no graph is replayed any more; the stages of a pipeline share it.
    fallback: Arc<OnceLock<String>>,
    /// Where a recording's time meets the device's.
    anchor: Mutex<Option<Anchor>>,
    replayed_runs: AtomicU64,
    eager_runs: AtomicU64,
    checked_runs: AtomicU64,
    recomputed_runs: AtomicU64,
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
        Self::with_selection(graph, device, dtype, SelectOptions::default())
    }

    /// As [`new`](Self::new), with options of the [selection](Self::set_selection); which 2:4 sparse weights stay packed is decided
    /// here.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with_selection(
        graph: &Graph,
        device: &Device,
        dtype: DType,
        select: SelectOptions,
    ) -> Result<Self> {
        let sparse = SparseWeights::of(graph, device, dtype, select, None)?;
        let constants = HostConstants::new(graph, dtype, device.properties().float8(), sparse.as_ref());
        let mut executor = Self::with_constants(graph, &constants, device, dtype)?;
        executor.selection.set_options(select);
        Ok(executor)
    }

    /// As [`with_selection`](Self::with_selection), with what counts as measured on this machine, in place of what the user's cache has.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with_tuned(
        graph: &Graph,
        device: &Device,
        dtype: DType,
        select: SelectOptions,
        tuned: Store,
    ) -> Result<Self> {
        let sparse = SparseWeights::of(graph, device, dtype, select, Some(&tuned))?;
        let constants = HostConstants::new(graph, dtype, device.properties().float8(), sparse.as_ref());
        let mut executor = Self::with_constants(graph, &constants, device, dtype)?;
        executor.selection.set_options(select);
        executor.selection.set_tuned(tuned);
        Ok(executor)
    }

    /// As [`new`](Self::new), for a share of a model; no weight stays packed.
    ///
    /// # Errors
    ///
    /// As there.
    pub(super) fn of_share(graph: &Graph, device: &Device, dtype: DType) -> Result<Self> {
        let select = SelectOptions {
            sparse: Sparse::Off,
            ..SelectOptions::default()
        };
        Self::with_selection(graph, device, dtype, select)
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
        check_rounding(graph, device, dtype)?;
        if dtype.size() == 1 {
            return Err(Error::argument("dtype", "a GPU computes in f32, f16 or bf16"));
        }
        let units = graph.nodes().iter().filter_map(|node| unit(&node.op));
        let sparse = constants.has_sparse().then(|| Unit::of("sparse_gemm"));
        let rounding = rounding_units(graph, device.properties().arch());
        let units = units.chain(attention_units(graph)).chain(rounding);
        let loading = timeline::span(Activity::LoadKernels);
        let kernels = Kernels::load(device, dtype, units.chain(sparse))?;
        drop(loading);
        let copier = device.stream()?;
        let probing = timeline::named_span(Activity::Select, || "open hipBLASLt".into());
        let (key, no_hipblaslt) = key(&copier);
        drop(probing);
        let version = |library: &str| match library {
            HIPSPARSELT => Hipsparselt::version(&copier),
            _ => Dnn::version(device).ok(),
        };
        let selection = Selection::new(SelectOptions::default(), key, no_hipblaslt, version);
        let uploading = timeline::named_span(Activity::Weights, || "weights: upload".into());
        let constants = Constants::upload(constants, &copier)?;
        drop(uploading);
        Ok(Self {
            selection,
            constants,
            device: device.clone(),
            dtype,
            graphs: GraphMode::default(),
            rank: None,
            turn: None,
            resize: None,
            kernels,
            copier,
            contexts: Mutex::default(),
            inputs: Mutex::default(),
            pieces: Pieces::default(),
            slabs: Arc::new(Slabs::new(device)),
            fallback: Arc::default(),
            anchor: Mutex::default(),
            replayed_runs: AtomicU64::new(0),
            eager_runs: AtomicU64::new(0),
            checked_runs: AtomicU64::new(0),
            recomputed_runs: AtomicU64::new(0),
        })
    }

    /// How linear layers that round to FP8 are computed on a device in `dtype`.
    pub fn float8(device: &Device, dtype: DType) -> Float8 {
        match device.properties().float8() {
            Some(_) if dtype.size() == 2 => Float8::Stored,
            _ => Float8::Weights,
        }
    }

    /// Makes it a rank of a tensor-parallel model.
    pub(super) fn set_rank(&mut self, rank: Rank) {
        self.rank = Some(rank);
        self.contexts().clear();
    }

    /// Makes runs compute one after the other.
    ///
    /// Where the stages of a pipeline computed several batches at once, all of these would leave a stage at the same time, late, and the
    /// stages behind it would have nothing to do meanwhile.
    pub(super) fn take_turns(&mut self) {
        self.turn = Some(Mutex::default());
    }

    /// What all ranks of a tensor-parallel model find true.
    fn agree(&self, mine: bool) -> bool {
        self.rank.as_ref().map_or(mine, |rank| rank.agreement.agree(mine))
    }

    /// An error, which names the rank if it is one. That of a communicator does, and may be another's.
    fn named(&self, error: Error) -> Error {
        match (&self.rank, error) {
            (_, error @ (Error::Rank { .. } | Error::Hip(hip::Error::Communicator { .. })))
            | (None, error) => error,
            (Some(rank), error) => rank.error(error),
        }
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

    /// The code of the crate's own kernels that this executor loaded, by kernel and dtype.
    ///
    /// # Errors
    ///
    /// It cannot be had again.
    #[cfg(feature = "validate")]
    pub fn code(&self) -> Result<Vec<(String, hip::Code)>> {
        self.kernels.code()
    }

    /// How the runs so far were carried out.
    pub fn replays(&self) -> Replays {
        Replays {
            replayed_runs: self.replayed_runs.load(Ordering::Relaxed),
            eager_runs: self.eager_runs.load(Ordering::Relaxed),
            checked_runs: self.checked_runs.load(Ordering::Relaxed),
            recomputed_runs: self.recomputed_runs.load(Ordering::Relaxed),
            fallback: self.fallback.get().cloned(),
            all_reduce: None,
            no_direct: None,
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
            ..
        } = &reserved.context.memory;
        let parameter = |(&id, &address): (&ValueId, &u64)| {
            let shape = &plan.graph().value(id).shape;
            let bytes = match (self.constants.sparse().get(&id), shape.as_slice()) {
                (Some(SparseForm::Packed), &[n, k]) => sparse_bytes(n, k),
                (Some(&SparseForm::Compressed { bytes }), _) => bytes,
                _ => shape.iter().product::<usize>() * self.dtype.size(),
            };
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
}

/// What measurements on the stream's device depend on, but for MIOpen and hipSPARSELt; and why hipBLASLt cannot be used, if so.
fn key(stream: &Stream) -> (Key, Option<String>) {
    let properties = stream.device().properties();
    let key = Key {
        device: properties.name.clone(),
        arch: properties.arch().to_owned(),
        libraries: String::new(),
    };
    match Libraries::hipblaslt_version(stream) {
        Ok(version) => (key.with(HIPBLASLT, Some(version)), None),
        Err(reason) => (key, Some(reason)),
    }
}

/// # Errors
///
/// [`Error::Argument`], naming the node, if the device does not multiply what a linear layer rounds to; [`Error::Graph`] if a
/// weight is not of these 8 bits.
fn check_rounding(graph: &Graph, device: &Device, dtype: DType) -> Result<()> {
    for node in graph.nodes() {
        let Op::Linear(Linear {
            rounding: Some(rounding),
            ..
        }) = &node.op
        else {
            continue;
        };
        let weight = node.inputs.get(1).map(|&id| graph.value(id));
        let stored = match rounding {
            Rounding::Int8(_) => DType::I8,
            Rounding::Float8(_) => DType::F8E4M3,
            Rounding::Bf16 => continue,
        };
        if weight.is_none_or(|weight| weight.dtype != stored) {
            let reason = format!(
                "its weight is not {stored}: models in 8 bits are not divided among GPUs by tensor parallelism"
            );
            return Err(Error::graph(&node.name, reason));
        }
        if stored == DType::F8E4M3 && HipExecutor::float8(device, dtype) != Float8::Stored {
            let reason = format!(
                "{} does not multiply FP8 with activations in {dtype} (node `{}`)",
                device.name(),
                node.name
            );
            return Err(Error::argument("device", reason));
        }
    }
    Ok(())
}

impl fmt::Debug for HipExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HipExecutor")
            .field("device", &self.device)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}
