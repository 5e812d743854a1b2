//! The executor of one GPU.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::candidate::Hipsparselt;
use super::clock::AnchorCell;
use super::constants::{Constants, HostConstants};
use super::context::Contexts;
use super::graphs::GraphReplays;
use super::libraries::selection_key;
use super::lower::{
    InPlace, Lower as _, attention_backward_units, attention_units, column_sum_units, conv_units, decodes,
    linear_units, reduce_units,
};
use super::memory::HostMemory;
use super::order::RunOrder;
use super::preprocess::DeviceResize;
use super::rank::Rank;
use super::sparse::SparseWeights;
use super::states::{States, Turn};
use crate::dtype::from_hip;
use crate::error::{Error, Result};
use crate::exec::executor::ExecutorInfo;
use crate::exec::options::ExecutorOptions;
use crate::exec::plans::Plans;
use crate::exec::replays::{GraphSwitch, Replays};
use crate::exec::select::{HIPSPARSELT, SelectOptions, Selection, Store};
use crate::exec::states::{check_divisible, check_part, check_shape, state_named};
use crate::exec::threads::HostThreads;
use crate::graph::{Float8, Graph, ValueId};
use crate::hip::{self, Device, Dnn, Operand};
use crate::kernels::{Kernels, Unit};
use crate::ops::{Linear, Op, Rounding};
use crate::tensor::{DType, Tensor};
use crate::timeline::{self, Activity};

/// Runs plans of one graph on a GPU. Any number of threads may run it at once, each on its own stream.
///
/// If the graph has parameters or states, all runs share a stream and execute one after the other, in the order of submission.
pub struct HipExecutor {
    pub(super) info: ExecutorInfo,
    pub(super) plans: Plans,
    pub(super) device: Device,
    pub(super) dtype: DType,
    pub(super) kernels: Kernels,
    pub(super) constants: Constants,
    /// Set if the graph has parameters or states.
    pub(super) states: Option<States>,
    /// Results that are written to states directly.
    pub(super) in_place: InPlace,
    pub(super) selection: Selection,
    pub(super) memory: HostMemory,
    pub(super) contexts: Contexts,
    pub(super) graphs: GraphReplays,
    pub(super) resize: Option<DeviceResize>,
    /// Set for a rank of a tensor-parallel model.
    pub(super) rank: Option<Rank>,
    /// Set for a stage of a pipeline. Otherwise runs share the GPU and may overlap.
    pub(super) order: Option<RunOrder>,
    pub(super) anchor: AnchorCell,
}

impl HipExecutor {
    /// Loads the kernels for `graph`, which is [optimised](crate::graph::optimize), and uploads its weights.
    ///
    /// Kernels that the cache does not have for the device are compiled. The options decide which 2:4 sparse weights stay packed.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the GPU does not support the dtype. Fails if the kernels cannot be compiled or loaded, a library is missing,
    /// or the weights do not fit into the memory.
    pub fn new(graph: &Graph, device: &Device, options: &ExecutorOptions) -> Result<Self> {
        let tuned = options.tuned.as_ref();
        let sparse = SparseWeights::of(graph, device, options.dtype, options.select, tuned)?;
        let host = HostThreads::near(device, options.threads)?;
        let float8 = device.properties().float8().map(from_hip);
        let constants = HostConstants::new(graph, options.dtype, float8, sparse.as_ref());
        Self::with_constants(graph, &constants, device, host, options)
    }

    /// Creates the executor for a part of a model. It packs no weights.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has parameters, states or several inputs. The errors of [`HipExecutor::new`].
    pub(super) fn of_share(
        graph: &Graph,
        device: &Device,
        host: HostThreads,
        options: &ExecutorOptions,
    ) -> Result<Self> {
        check_divisible(graph)?;
        let constants = HostConstants::new(
            graph,
            options.dtype,
            device.properties().float8().map(from_hip),
            None,
        );
        Self::with_constants(graph, &constants, device, host, options)
    }

    /// Creates an executor from constants in its dtype. Executors on several devices can share the constants.
    pub(in crate::exec) fn with_constants(
        graph: &Graph,
        constants: &HostConstants,
        device: &Device,
        host: HostThreads,
        options: &ExecutorOptions,
    ) -> Result<Self> {
        let dtype = options.dtype;
        check_rounding(graph, device, dtype)?;
        if dtype.size() == 1 {
            return Err(Error::argument("dtype", "a GPU computes in f32, f16 or bf16"));
        }
        let units = graph.nodes().iter().filter_map(|node| node.op.unit());
        let sparse = constants.has_sparse().then(|| Unit::of("sparse_gemm"));
        let linear = linear_units(graph, device.properties().arch());
        let attention = attention_units(graph).chain(attention_backward_units(graph));
        // Compares replays.
        let checksum = graph.states().next().map(|_| Unit::of("checksum"));
        let units = units
            .chain(attention)
            .chain(linear)
            .chain(column_sum_units(graph))
            .chain(reduce_units(graph))
            .chain(conv_units(graph))
            .chain(checksum);
        let loading = timeline::span(Activity::LoadKernels);
        let mut kernels = Kernels::load(device, dtype, units.chain(sparse))?;
        for node in graph.nodes() {
            if let Op::Custom(op) = &node.op {
                kernels.load_custom(&node.name, op)?;
            }
        }
        drop(loading);
        let copier = device.stream()?;
        let probing = timeline::named_span(Activity::Select, || "open hipBLASLt".into());
        let (key, hipblaslt_unavailable) = selection_key(&copier);
        drop(probing);
        let version = |library: &str| match library {
            HIPSPARSELT => Hipsparselt::version(&copier),
            _ => Dnn::version(device).ok(),
        };
        let mut selection = Selection::new(options.select, key, hipblaslt_unavailable, version);
        selection.set_decodes(decodes(graph));
        if let Some(tuned) = &options.tuned {
            selection.set_tuned(tuned.clone());
        }
        let uploading = timeline::named_span(Activity::Weights, || "weights: upload".into());
        let constants = Constants::upload(constants, &copier)?;
        let states = States::upload(graph, dtype, device)?;
        drop(uploading);
        let resize = match &options.resize {
            Some(rule) => Some(DeviceResize::load(rule, device)?),
            None => None,
        };
        let plans = Plans::new(graph, dtype);
        let graphs = GraphSwitch::new(options.graphs);
        Ok(Self {
            info: ExecutorInfo {
                devices: vec![device.clone()],
                graph: plans.graph().clone(),
                activations: dtype,
                in_flight: 2,
                resizes: resize.is_some(),
                weight_bytes: vec![constants.bytes() + states.as_ref().map_or(0, States::bytes)],
                host,
                graphs: graphs.clone(),
            },
            plans,
            device: device.clone(),
            dtype,
            kernels,
            constants,
            states,
            in_place: InPlace::of(graph, Op::updates_in_place),
            selection,
            memory: HostMemory::new(device, copier),
            contexts: Contexts::default(),
            graphs: GraphReplays::new(graphs),
            resize,
            rank: None,
            order: None,
            anchor: AnchorCell::default(),
        })
    }

    /// Returns how FP8 linear layers are computed on a device in `dtype`.
    pub fn float8(device: &Device, dtype: DType) -> Float8 {
        match device.properties().float8() {
            Some(_) if dtype.size() == 2 => Float8::Stored,
            _ => Float8::Weights,
        }
    }

    /// Makes the executor a rank of a tensor-parallel model.
    pub(super) fn set_rank(&mut self, rank: Rank) {
        self.rank = Some(rank);
        self.contexts.clear();
    }

    /// Makes the executor a stage of a pipeline. Its stages share `graphs` and `fallback`. Stages that are not ranks run in order.
    pub(super) fn set_stage(&mut self, graphs: GraphSwitch, fallback: Arc<OnceLock<String>>, in_order: bool) {
        self.graphs.share(graphs.clone(), fallback);
        self.info.graphs = graphs;
        // The runs of a rank share a stream.
        if in_order && self.rank.is_none() {
            self.order = Some(RunOrder::default());
        }
    }

    /// Returns true if all ranks of a tensor-parallel model call this with true.
    pub(super) fn agree(&self, mine: bool) -> bool {
        self.rank.as_ref().map_or(mine, |rank| rank.agreement.agree(mine))
    }

    /// Returns true if kernels access inputs and results in host memory.
    ///
    /// Graphs with parameters or states have no such memory: the next run is submitted while the host still needs that of this one. Ranks must
    /// agree on replays, which depend on the memory of the input.
    pub(super) fn shares_host_memory(&self) -> bool {
        self.device.shares_host_memory() && self.states.is_none() && self.rank.is_none()
    }

    /// Adds the rank to an error. An error of a communicator already names a rank, which may be another one.
    pub(super) fn with_rank(&self, error: Error) -> Error {
        match (&self.rank, error) {
            (_, error @ (Error::Rank { .. } | Error::Hip(hip::Error::Communicator { .. })))
            | (None, error) => error,
            (Some(rank), error) => rank.error(error),
        }
    }

    /// Waits for the right to submit work. It must be held while anything is submitted to the stream of a context.
    pub(super) fn turn(&self) -> Turn<'_> {
        self.states.as_ref().map_or(Turn::FREE, States::turn)
    }

    /// Returns the elements of the parameter or state `name`, as of the runs that were submitted before. Waits for these runs.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name. Fails if a run failed.
    pub fn state(&self, name: &str) -> Result<Tensor> {
        let (states, id) = self.state_named(name)?;
        let shape = self.info.graph.value(id).shape.as_slice();
        let tensor = Tensor::from_f32(shape, states.read(id)?);
        tensor.ok_or_else(|| Error::internal("states", format!("`{name}` has no elements of its shape")))
    }

    /// Sets the elements of the parameter or state `name`, rounded to its dtype, for runs that are submitted later.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name, or if its shape differs. Fails if a run failed.
    pub fn set_state(&self, name: &str, tensor: &Tensor) -> Result<()> {
        let (states, id) = self.state_named(name)?;
        check_shape(&self.info.graph, id, tensor)?;
        states.write_part(id, 0, &tensor.to_f32())
    }

    /// Sets elements of the parameter or state `name`, from element `first` on, rounded to its dtype, for runs that are submitted later.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name, or if it has fewer elements. Fails if a run failed.
    pub fn write_state(&self, name: &str, first: usize, values: &[f32]) -> Result<()> {
        let (states, id) = self.state_named(name)?;
        check_part(&self.info.graph, id, first, values.len())?;
        states.write_part(id, first, values)
    }

    /// Sets elements of the parameter or state `name`, from element `first` on, to those in GPU memory, for runs that are submitted later. They have the dtype of
    /// the state.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name, or if it has fewer elements. Fails if a run failed.
    pub fn copy_to_state(&self, name: &str, first: usize, source: Operand<'_>) -> Result<()> {
        let (states, id) = self.state_named(name)?;
        let element = states.dtype_of(id)?.size();
        check_part(&self.info.graph, id, first, source.bytes().div_ceil(element))?;
        states.copy_part(id, first, source)
    }

    fn state_named(&self, name: &str) -> Result<(&States, ValueId)> {
        let id = state_named(&self.info.graph, name)?;
        let missing = || Error::internal("states", format!("`{name}` is not on the device"));
        Ok((self.states.as_ref().ok_or_else(missing)?, id))
    }

    /// Changes how kernels are selected.
    pub fn set_selection(&mut self, options: SelectOptions) {
        self.selection.set_options(options);
        // Contexts are prepared for the previous selection.
        self.contexts.clear();
    }

    /// Replaces the measurements of this machine. The default is those in the user's cache.
    pub fn set_tuned(&mut self, tuned: Store) {
        self.selection.set_tuned(tuned);
        self.contexts.clear();
    }

    /// Returns how kernels are selected.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the dtype that the executor computes in.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the bytes of the weights on the device, including parameters and states.
    pub fn weight_bytes(&self) -> usize {
        self.constants.bytes() + self.states.as_ref().map_or(0, States::bytes)
    }

    /// Returns the code of the builtin kernels that the executor loaded, by kernel and dtype.
    ///
    /// # Errors
    ///
    /// Fails if the code cannot be read or compiled again.
    pub fn code(&self) -> Result<Vec<(String, hip::Code)>> {
        self.kernels.code()
    }

    /// Returns how runs were executed so far.
    pub fn replays(&self) -> Replays {
        self.graphs.statistics()
    }
}

/// Checks the dtypes that linear layers round to.
///
/// # Errors
///
/// [`Error::Device`], naming the node, if the device has no GEMM of a linear layer's dtype. [`Error::Graph`] if a weight has another
/// dtype.
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
                "does not multiply FP8 with activations in {dtype} (node `{}`)",
                node.name
            );
            return Err(Error::device(device.name(), reason));
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
