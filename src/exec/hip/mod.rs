//! The GPU's executor: f32, f16 or bf16 on any provider of HIP, through [`crate::hip`].
//!
//! Weights lie in one allocation, activations in the arena that the plan laid out. A step becomes calls ([`lower`]):
//! products by rocBLAS, all else by the crate's own kernels. Everything is submitted to one stream and waited for once.

mod constants;
mod guarded;
mod lane;
mod lower;
mod preprocess;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ndarray::Array2;

use self::constants::Constants;
pub(crate) use self::constants::{append, unpack};
use self::lane::{Lane, Regions};
use self::lower::{Addresses, Call, kernel_file, lower, scratch_bytes};
pub use self::preprocess::HipPreprocess;
use super::Input;
use crate::error::{Error, Result};
use crate::graph::plan::{Plan, Step};
use crate::graph::{DType, Graph, OutputKind};
use crate::hip::kernels::Kernels;
use crate::hip::{Device, Event, Pending, PinnedBuffer};

/// Called with each stage of a run and the time that it took on the device, when the run is over.
pub type StageObserver<'a> = dyn FnMut(Stage<'_>, Duration) + Send + 'a;

/// A part of a run on a device.
#[derive(Clone, Copy, Debug)]
pub enum Stage<'a> {
    /// The input's way to the device.
    Upload,
    /// A step of the plan.
    Step(&'a Step),
    /// The results' way back.
    Download,
}

/// Runs plans of one graph on a GPU. Can be shared: any number of threads may run it at once, each on a stream of its
/// own.
pub struct HipExecutor {
    device: Device,
    dtype: DType,
    kernels: Kernels,
    constants: Constants,
    /// Lanes that no run is using now.
    lanes: Mutex<Vec<Lane>>,
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
        if dtype == DType::U8 {
            return Err(Error::argument("dtype", "a GPU computes in f32, f16 or bf16"));
        }
        let files: BTreeSet<_> = graph.nodes().iter().filter_map(|n| kernel_file(&n.op)).collect();
        let kernels = Kernels::load(device, dtype, files)?;
        let lane = Lane::new(device)?;
        Ok(Self {
            constants: Constants::new(graph, dtype, &lane.stream)?,
            device: device.clone(),
            dtype,
            kernels,
            lanes: Mutex::new(vec![lane]),
        })
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

    /// Runs `plan`, which must be of this executor's graph and dtype, on `input`: each output as `[B, channels]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `input` is not what the plan takes or the plan is in another dtype; [`Error::Graph`],
    /// naming the node and the device, if a step cannot be submitted; what the device's work failed with.
    pub fn run(
        &self,
        plan: &Plan,
        input: Input<'_>,
        observer: Option<&mut StageObserver<'_>>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        input.check(plan.graph(), plan.batch())?;
        if plan.dtype() != self.dtype {
            let reason = format!("the plan wants {}, the executor has {}", plan.dtype(), self.dtype);
            return Err(Error::argument("dtype", reason));
        }
        let idle = self.lanes().pop();
        let mut lane = match idle {
            Some(lane) => lane,
            None => Lane::new(&self.device)?,
        };
        // A lane with an error is dropped.
        let outputs = self.run_on(&mut lane, plan, input, observer)?;
        self.lanes().push(lane);
        Ok(outputs)
    }

    fn run_on(
        &self,
        lane: &mut Lane,
        plan: &Plan,
        input: Input<'_>,
        observer: Option<&mut StageObserver<'_>>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        let stream = lane.stream.clone();
        let mut clock = Clock {
            events: observer.is_some().then(Vec::new),
        };
        clock.tick(|| stream.record())?;

        let bytes: &[u8] = match input {
            Input::Pixels(pixels) => pixels,
            Input::Values(values) => bytemuck::cast_slice(values),
        };
        let mut staging = lane.staging.take(bytes.len(), &self.device)?;
        staging.copy_from_slice(bytes);
        let uploaded = lane.input.at_least(bytes.len(), &stream)?.upload(0, staging)?;
        clock.tick(|| stream.record())?;

        self.submit(lane, plan, bytes.len(), &mut clock)?;

        let downloads = self.download(lane, plan)?;
        clock.tick(|| stream.record())?;
        let mut outputs = Vec::with_capacity(downloads.len());
        for ((index, &(kind, value, id)), download) in plan.outputs().iter().enumerate().zip(downloads) {
            let name = &plan.graph().value(value).name;
            let [rows, columns] = *plan.buffer(id).shape else {
                let reason = format!("an output of shape {:?}, expected [B, D]", plan.buffer(id).shape);
                return Err(Error::graph(name, reason));
            };
            let bytes = download.wait()?;
            let values = unpack(&bytes, self.dtype);
            lane.results[index].keep(bytes);
            let matrix = Array2::from_shape_vec((rows, columns), values);
            outputs.push((kind, matrix.map_err(|e| Error::graph(name, e))?));
        }
        lane.staging.keep(uploaded.wait()?);
        if let Some(observer) = observer {
            clock.tell(plan, observer)?;
        }
        Ok(outputs)
    }

    /// Submits all steps.
    fn submit(&self, lane: &mut Lane, plan: &Plan, input_bytes: usize, clock: &mut Clock) -> Result<()> {
        let stream = &lane.stream;
        let regions = Regions([
            lane.arena.at_least(plan.arena_bytes(), stream)?.writing(),
            self.constants.reading(),
            lane.input.at_least(input_bytes, stream)?.reading(),
            lane.scratch.at_least(scratch_bytes(plan), stream)?.writing(),
        ]);
        let [arena, _, input, scratch] = regions.0.map(|region| region.address());
        let addresses = Addresses {
            input,
            constants: self.constants.addresses(),
            arena,
            scratch,
        };
        for step in plan.steps() {
            let node = &plan.node(step).name;
            let calls = lower(plan, step, addresses)
                .map_err(|reason| Error::graph(node, format!("{}: {reason}", self.device.name())))?;
            for call in calls {
                self.call(call, stream, &mut lane.blas, &regions)
                    .map_err(|error| self.at(node, error))?;
            }
            clock.tick(|| stream.record())?;
        }
        Ok(())
    }

    fn call(
        &self,
        call: Call,
        stream: &crate::hip::Stream,
        blas: &mut crate::hip::Blas,
        regions: &Regions<'_>,
    ) -> Result<()> {
        let (kernels, memory) = (&self.kernels, &regions.0);
        match call {
            Call::PatchExtract(arguments) => kernels.launch(stream, arguments, memory),
            Call::PatchExtractChw(arguments) => kernels.launch(stream, arguments, memory),
            Call::Tokens(arguments) => kernels.launch(stream, arguments, memory),
            Call::Add(arguments) => kernels.launch(stream, arguments, memory),
            Call::LayerNorm(arguments) => kernels.launch(stream, arguments, memory),
            Call::BiasActivation(arguments) => kernels.launch(stream, arguments, memory),
            Call::SwiGlu(arguments) => kernels.launch(stream, arguments, memory),
            Call::Attention(arguments) => kernels.launch(stream, arguments, memory),
            Call::Softmax(arguments) => kernels.launch(stream, arguments, memory),
            Call::Pool(arguments) => kernels.launch(stream, arguments, memory),
            Call::Gemm { gemm, a, b, c } => {
                blas.gemm(&gemm, regions.from(a)?, regions.from(b)?, regions.from(c)?)
            }
            Call::CopyRows(copy) => stream.copy_rows(
                (regions.from(copy.to)?, copy.to_stride),
                (regions.from(copy.from)?, copy.from_stride),
                copy.bytes,
                copy.rows,
            ),
        }
    }

    fn download(&self, lane: &mut Lane, plan: &Plan) -> Result<Vec<Pending<PinnedBuffer<u8>>>> {
        let Lane {
            arena,
            results,
            stream,
            ..
        } = lane;
        results.resize_with(results.len().max(plan.outputs().len()), Default::default);
        let arena = arena.at_least(plan.arena_bytes(), stream)?;
        let outputs = plan.outputs().iter().zip(results);
        outputs
            .map(|(&(_, _, id), result)| {
                let buffer = plan.buffer(id);
                arena.download(buffer.offset, result.take(buffer.bytes, &self.device)?)
            })
            .collect()
    }

    /// An error of a node's call. What concerns the device names it already.
    fn at(&self, node: &str, error: Error) -> Error {
        match error {
            Error::Device { .. } | Error::OutOfMemory { .. } | Error::NoCode { .. } => {
                Error::graph(node, error)
            }
            _ => Error::graph(node, format!("{}: {error}", self.device.name())),
        }
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, Vec<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HipExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HipExecutor")
            .field("device", &self.device)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}

/// The points between a run's stages, if someone wants to know.
struct Clock {
    events: Option<Vec<Event>>,
}

impl Clock {
    fn tick(&mut self, record: impl FnOnce() -> Result<Event>) -> Result<()> {
        if let Some(events) = &mut self.events {
            events.push(record()?);
        }
        Ok(())
    }

    fn tell(&self, plan: &Plan, observer: &mut StageObserver<'_>) -> Result<()> {
        let steps = plan.steps().iter().map(Stage::Step);
        let stages = std::iter::once(Stage::Upload)
            .chain(steps)
            .chain([Stage::Download]);
        let events = self.events.as_deref().unwrap_or_default();
        for (stage, pair) in stages.zip(events.windows(2)) {
            observer(stage, pair[1].since(&pair[0])?);
        }
        Ok(())
    }
}
