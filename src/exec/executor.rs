//! The executor of a session: the CPU's or a GPU's, or that of several GPUs.

mod gpus;
mod runs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use ndarray::Array2;
use parking_lot::Mutex;
use rayon::ThreadPool;

use self::gpus::host_threads;
pub use self::runs::{PendingRun, Reservation, RunFeed};
use super::Arena;
use super::cpu::CpuExecutor;
use super::hip::{
    Feed, Finished, GraphMode, HipExecutor, KeepResult, PipelineExecutor, Replays, Stage, Submission,
    TensorExecutor, TensorFinished, TimedCall,
};
use super::select::{SelectOptions, Store};
use super::staging::Staging;
use super::step_args::step_args;
use crate::error::{Error, Result};
use crate::exec::slabs::Slabs;
use crate::graph::plan::{Plan, Step};
use crate::graph::{Graph, OutputKind, Role};
use crate::hip::{Device, PinnedBuffer};
use crate::image::Preprocess;
use crate::tensor::{DType, Input};
use crate::timeline::{self, Activity};
use crate::timing::{Phase, Timing};

/// Runs plans of one graph, on the CPU or on a GPU. Can be shared between threads.
#[derive(Debug)]
pub enum Executor {
    /// On the CPU.
    Cpu {
        /// The executor.
        executor: CpuExecutor,
        /// Arenas that no run is using.
        arenas: Mutex<Vec<Arena>>,
    },
    /// On a GPU.
    Hip {
        /// The executor.
        executor: Box<HipExecutor>,
        /// For work on the host; executors on GPUs of one NUMA node share them.
        threads: Arc<ThreadPool>,
        /// How many threads decode.
        decode_threads: usize,
    },
    /// On several GPUs, each of which has a part of every layer; with a pipeline, a part of each of some of the layers.
    Tensor {
        /// The executor.
        executor: Box<TensorExecutor>,
        /// For work on the host.
        threads: Arc<ThreadPool>,
        /// How many threads decode.
        decode_threads: usize,
    },
    /// On several GPUs, each of which has some of the layers.
    Pipeline {
        /// The executor.
        executor: Box<PipelineExecutor>,
        /// For work on the host.
        threads: Arc<ThreadPool>,
        /// How many threads decode.
        decode_threads: usize,
    },
}

impl Executor {
    /// On the CPU, see [`CpuExecutor::with_dtype`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn cpu(graph: &Graph, dtype: DType, threads: Option<usize>) -> Result<Self> {
        let _span = timeline::named_span(Activity::Weights, || "weights: prepack".into());
        Ok(Self::Cpu {
            executor: CpuExecutor::with_dtype(graph, dtype, threads)?,
            arenas: Mutex::default(),
        })
    }

    /// What plans for this executor hold activations in, where it computes in `dtype`: on the CPU f32.
    pub fn activations(&self, dtype: DType) -> DType {
        match self {
            Self::Cpu { .. } => DType::F32,
            Self::Hip { .. } | Self::Tensor { .. } | Self::Pipeline { .. } => dtype,
        }
    }

    /// On a GPU, see [`HipExecutor::new`]; `threads` are for work on the host.
    ///
    /// # Errors
    ///
    /// As there, or the threads cannot be started.
    pub fn hip(
        graph: &Graph,
        device: &Device,
        dtype: DType,
        threads: Option<usize>,
        select: SelectOptions,
    ) -> Result<Self> {
        let executor = HipExecutor::with_selection(graph, device, dtype, select)?;
        Ok(Self::on_gpu(
            executor,
            host_threads(device, threads)?.into(),
            threads,
        ))
    }

    /// As [`hip`](Self::hip), with what counts as measured on this machine, in place of what the user's cache has.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn hip_tuned(
        graph: &Graph,
        device: &Device,
        dtype: DType,
        threads: Option<usize>,
        (select, tuned): (SelectOptions, Store),
    ) -> Result<Self> {
        let executor = HipExecutor::with_tuned(graph, device, dtype, select, tuned)?;
        Ok(Self::on_gpu(
            executor,
            host_threads(device, threads)?.into(),
            threads,
        ))
    }

    fn on_gpu(executor: HipExecutor, threads: Arc<ThreadPool>, requested: Option<usize>) -> Self {
        Self::Hip {
            executor: Box::new(executor),
            threads,
            // Decoding waits for memory and branches rather than for vector units: two threads share a core well, and any
            // core will do.
            decode_threads: requested.unwrap_or_else(num_cpus::get),
        }
    }

    /// The GPU that it runs on, the first of several.
    pub fn gpu(&self) -> Option<&Device> {
        match self {
            Self::Cpu { .. } => None,
            Self::Hip { executor, .. } => Some(executor.device()),
            Self::Tensor { executor, .. } => executor.devices().next(),
            Self::Pipeline { executor, .. } => executor.devices().next(),
        }
    }

    /// Whether its threads for work on the host are those of `other`.
    pub(crate) fn shares_threads(&self, other: &Self) -> bool {
        let pool = |executor| match executor {
            &Self::Cpu { .. } => None,
            Self::Hip { threads, .. } | Self::Tensor { threads, .. } | Self::Pipeline { threads, .. } => {
                Some(Arc::as_ptr(threads))
            }
        };
        pool(self).is_some() && pool(self) == pool(other)
    }

    /// The GPUs that it runs on, in the order of their ranks or stages; none is the CPU.
    pub fn devices(&self) -> Vec<Device> {
        match self {
            Self::Cpu { .. } => Vec::new(),
            Self::Hip { executor, .. } => vec![executor.device().clone()],
            Self::Tensor { executor, .. } => executor.devices().cloned().collect(),
            Self::Pipeline { executor, .. } => executor.devices().cloned().collect(),
        }
    }

    /// How many batches are in flight at best: one computes, or one in each stage, while the next is copied in.
    pub(crate) fn in_flight(&self) -> usize {
        match self {
            Self::Pipeline { executor, .. } => executor.in_flight(),
            Self::Tensor { executor, .. } => executor.in_flight(),
            _ => 2,
        }
    }

    /// Sets whether runs replay captured graphs; no effect on the CPU, and with tensor parallelism, which is given it when it is
    /// made.
    pub fn graphs(mut self, mode: GraphMode) -> Self {
        self.set_graphs(mode);
        self
    }

    /// As [`graphs`](Self::graphs).
    pub(crate) fn set_graphs(&mut self, mode: GraphMode) {
        match self {
            Self::Hip { executor, .. } => executor.set_graphs(mode),
            Self::Pipeline { executor, .. } => executor.set_graphs(mode),
            Self::Cpu { .. } | Self::Tensor { .. } => {}
        }
    }

    /// Sets how kernels are selected; no effect on the CPU, and with tensor parallelism, which is given it when it is made.
    pub fn select(mut self, options: SelectOptions) -> Self {
        match &mut self {
            Self::Hip { executor, .. } => executor.set_selection(options),
            Self::Pipeline { executor, .. } => executor.set_selection(options),
            Self::Cpu { .. } | Self::Tensor { .. } => {}
        }
        self
    }

    /// Makes a GPU resize images to the model's input size, by `rule`; no effect on the CPU.
    ///
    /// # Errors
    ///
    /// See [`HipExecutor::set_resize`]; [`Error::Argument`] with tensor parallelism.
    pub fn resize(mut self, rule: &Preprocess) -> Result<Self> {
        match &mut self {
            Self::Hip { executor, .. } => executor.set_resize(rule)?,
            Self::Pipeline { executor, .. } => executor.set_resize(rule)?,
            Self::Cpu { .. } => {}
            Self::Tensor { .. } => {
                let reason = "with tensor parallelism images are resized on the host";
                return Err(Error::argument("resize", reason));
            }
        }
        Ok(self)
    }

    /// Whether a GPU resizes images.
    pub fn resizes(&self) -> bool {
        match self {
            Self::Hip { executor, .. } => executor.resizes(),
            Self::Pipeline { executor, .. } => executor.first().is_ok_and(HipExecutor::resizes),
            Self::Cpu { .. } | Self::Tensor { .. } => false,
        }
    }

    /// The number of threads for work on the host.
    pub fn threads(&self) -> usize {
        match self {
            Self::Cpu { executor, .. } => executor.threads(),
            Self::Hip { threads, .. } | Self::Tensor { threads, .. } | Self::Pipeline { threads, .. } => {
                threads.current_num_threads()
            }
        }
    }

    /// The number of threads for decoding: as many as were asked for, by default one per physical core where the CPU
    /// computes too, else one per logical core of the host.
    pub(crate) fn decode_threads(&self) -> usize {
        match self {
            Self::Cpu { executor, .. } => executor.threads(),
            Self::Hip { decode_threads, .. }
            | Self::Tensor { decode_threads, .. }
            | Self::Pipeline { decode_threads, .. } => *decode_threads,
        }
    }

    /// Runs `work` on the host within this executor's thread pool.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu { executor, .. } => executor.install(work),
            Self::Hip { threads, .. } | Self::Tensor { threads, .. } | Self::Pipeline { threads, .. } => {
                threads.install(work)
            }
        }
    }

    /// Runs `plan` on `input`, adding the time of each phase to `timing`: each output as `[B, channels]`, or
    /// `[B·tokens, channels]`.
    ///
    /// # Errors
    ///
    /// As [`CpuExecutor::run`]; what the device's work failed with.
    pub fn run(
        &self,
        plan: &Arc<Plan>,
        input: Input<'_>,
        timing: Option<&mut Timing>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        let how = Submission {
            timed: timing.is_some(),
            sleeps: false,
            ..Submission::default()
        };
        let pending = self.submit(self.reserve(plan.clone())?, RunFeed::Input(input), how)?;
        self.finish(pending, timing)
    }

    /// Runs `plan` on `input`, step by step, calling `observe` with each step and its time.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_steps(
        &self,
        plan: &Arc<Plan>,
        input: Input<'_>,
        observe: &mut (dyn FnMut(&Step, Duration) + Send),
    ) -> Result<()> {
        let how = Submission {
            timed: true,
            sleeps: false,
            ..Submission::default()
        };
        match self {
            Self::Cpu { executor, arenas } => {
                let mut arena = arenas.lock().pop().unwrap_or_default();
                executor.run(
                    plan,
                    input,
                    &mut arena,
                    Some(&mut |step, time| observe(step, time)),
                )?;
                arenas.lock().push(arena);
            }
            Self::Hip { executor, .. } => {
                let pending = self.submit(self.reserve(plan.clone())?, RunFeed::Input(input), how)?;
                let PendingRun::Hip(running) = pending else {
                    return Err(foreign("run"));
                };
                let mut steps = |stage: Stage<'_>, time| {
                    if let Stage::Step(step) = stage {
                        observe(step, time);
                    }
                };
                let Finished { memory, .. } = executor.finish(*running, Some(&mut steps))?;
                executor.keep(memory);
            }
            Self::Tensor { .. } | Self::Pipeline { .. } => {
                let reason = "are those of one device; this model is divided among several GPUs";
                return Err(Error::argument("steps", reason));
            }
        }
        Ok(())
    }

    /// The time of each kernel and library call of `plan` on a GPU; none on the CPU, whose steps are single calls.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); [`Error::Argument`] for a model that is divided among several GPUs.
    pub fn time_calls(&self, plan: &Arc<Plan>) -> Result<Vec<TimedCall>> {
        match self {
            Self::Cpu { .. } => Ok(Vec::new()),
            Self::Hip {
                executor, threads, ..
            } => executor.time_calls(plan, threads),
            Self::Tensor { .. } | Self::Pipeline { .. } => {
                let reason = "are those of one device; this model is divided among several GPUs";
                Err(Error::argument("calls", reason))
            }
        }
    }

    /// The device's time of a run of `plan` on a GPU, of as many without a pause as take `time`, see [`HipExecutor::time_runs`].
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); [`Error::Argument`] on the CPU, or for a model that is divided among several GPUs.
    pub fn time_runs(&self, plan: &Arc<Plan>, time: Duration) -> Result<Duration> {
        match self {
            Self::Hip {
                executor, threads, ..
            } => executor.time_runs(plan, time, threads),
            Self::Cpu { .. } | Self::Tensor { .. } | Self::Pipeline { .. } => {
                let reason = "are of one GPU that has the whole model";
                Err(Error::argument("times of runs", reason))
            }
        }
    }

    /// Memory for `images` images of `each` bytes, to be filled: pinned where a GPU copies from it. There it has
    /// `capacity` images, so that smaller batches use the memory of larger ones again.
    ///
    /// # Errors
    ///
    /// There is no memory that a GPU can read.
    pub(crate) fn stage(&self, images: usize, capacity: usize, each: usize) -> Result<Staging> {
        Ok(match self {
            // With tensor parallelism, each rank copies it to pinned memory near its GPU.
            Self::Cpu { .. } | Self::Tensor { .. } => Staging::Host(vec![0; images * each]),
            Self::Hip { .. } | Self::Pipeline { .. } => {
                let mut memory = self.entry()?.stage(capacity.max(images) * each)?;
                memory.set_len(images * each)?;
                Staging::Pinned(memory)
            }
        })
    }

    /// Pinned memory for decoded images, if a GPU resizes them.
    pub(crate) fn slabs(&self) -> Option<Arc<Slabs>> {
        self.entry()
            .ok()
            .filter(|executor| executor.resizes())
            .map(|executor| executor.slabs().clone())
    }

    /// As [`stage`](Self::stage), but for a caller that keeps it.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn stage_for_caller(&self, bytes: usize) -> Result<Staging> {
        Ok(match self {
            Self::Cpu { .. } | Self::Tensor { .. } => Staging::Host(vec![0; bytes]),
            Self::Hip { .. } | Self::Pipeline { .. } => Staging::Pinned(self.entry()?.pinned(bytes)?),
        })
    }

    /// Reserves the memory for a run of `plan`.
    ///
    /// # Errors
    ///
    /// [`hip::Error::OutOfMemory`](crate::hip::Error::OutOfMemory); there may be memory once another run is finished.
    pub(crate) fn reserve(&self, plan: Arc<Plan>) -> Result<Reservation> {
        Ok(match self {
            Self::Cpu { .. } => Reservation::Cpu(plan),
            Self::Hip { executor, .. } => Reservation::Hip(Box::new(executor.reserve(plan)?)),
            // Each rank reserves it when it comes to the run.
            Self::Tensor { .. } => Reservation::Tensor(plan),
            Self::Pipeline { executor, .. } => {
                let reserved = executor.reserve(plan.batch())?;
                Reservation::Pipeline(plan, Box::new(reserved))
            }
        })
    }

    /// Starts a run. On a GPU this returns when the input is staged and all work is submitted; on the CPU when the run is
    /// finished.
    ///
    /// # Errors
    ///
    /// As [`Executor::run`], except for failures of the device's work, which [`finish`](Self::finish) reports.
    pub(crate) fn submit(
        &self,
        reservation: Reservation,
        feed: RunFeed<'_>,
        how: Submission,
    ) -> Result<PendingRun> {
        match (self, reservation) {
            (Self::Cpu { executor, arenas }, Reservation::Cpu(plan)) => {
                let (input, memory) = match feed {
                    RunFeed::Input(input) => (input, None),
                    RunFeed::Staged(Staging::Host(pixels)) => (Input::Pixels(&[]), Some(pixels)),
                    RunFeed::Staged(Staging::Pinned(_)) => return Err(foreign("staging")),
                    RunFeed::Images(_) => {
                        return Err(Error::argument("images", "the CPU executor takes resized pixels"));
                    }
                    RunFeed::Device(_) => return Err(foreign("memory")),
                };
                let input = memory.as_deref().map_or(input, Input::Pixels);
                let mut timing = Timing::default();
                let start = Instant::now();
                let mut steps = Duration::ZERO;
                let span = timeline::named_span(Activity::Submit, || "run batch".into());
                let mut observe = |step: &Step, time| {
                    let node = plan.node(step);
                    timing.add(Phase::Step(node.role), time);
                    steps += time;
                    let name = || node.name.clone().into();
                    timeline::add_ended(Activity::Step(node.role), name, time, || step_args(&plan, step));
                };
                let mut arena = arenas.lock().pop().unwrap_or_default();
                let outputs = executor.run(&plan, input, &mut arena, Some(&mut observe))?;
                drop(span);
                timing.add(Phase::CopyOut, start.elapsed().saturating_sub(steps));
                arenas.lock().push(arena);
                Ok(PendingRun::Ready {
                    outputs,
                    timing,
                    memory,
                })
            }
            (
                Self::Hip {
                    executor, threads, ..
                },
                Reservation::Hip(reserved),
            ) => {
                let activations = activations(&feed, reserved.plan())?;
                let feed = match &activations {
                    Some(bytes) => Feed::Pageable(bytes),
                    None => device_feed(feed, reserved.plan())?,
                };
                let running = executor.submit(*reserved, feed, threads, how)?;
                Ok(PendingRun::Hip(Box::new(running)))
            }
            (
                Self::Pipeline {
                    executor, threads, ..
                },
                Reservation::Pipeline(plan, reserved),
            ) => {
                let feed = device_feed(feed, &plan)?;
                let running = executor.submit(*reserved, feed, threads, how)?;
                Ok(PendingRun::Pipeline(Box::new(running)))
            }
            (Self::Tensor { executor, .. }, Reservation::Tensor(plan)) => {
                let input = match feed {
                    RunFeed::Input(input) => {
                        plan.graph().check_input(input, plan.batch())?;
                        input_bytes(input).to_vec()
                    }
                    RunFeed::Staged(Staging::Host(pixels)) => pixels,
                    RunFeed::Staged(Staging::Pinned(_)) => return Err(foreign("staging")),
                    RunFeed::Images(_) => {
                        let reason = "with tensor parallelism they are resized on the host";
                        return Err(Error::argument("images", reason));
                    }
                    RunFeed::Device(_) => return Err(foreign("memory")),
                };
                Ok(PendingRun::Tensor(executor.submit(plan.batch(), input, how)?))
            }
            _ => Err(foreign("reservation")),
        }
    }

    /// Waits for a run.
    ///
    /// # Errors
    ///
    /// The error of the device's work.
    pub(crate) fn finish(
        &self,
        pending: PendingRun,
        timing: Option<&mut Timing>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        let (outputs, staging) = self.finish_with_staging(pending, timing)?;
        for memory in staging {
            if let Staging::Pinned(memory) = memory {
                self.keep(memory);
            }
        }
        Ok(outputs)
    }

    /// Takes pinned memory back, for the inputs of later runs; no effect on the CPU.
    pub(crate) fn keep(&self, memory: PinnedBuffer<u8>) {
        if let Ok(entry) = self.entry() {
            entry.keep(vec![memory]);
        }
    }

    /// As [`finish`](Self::finish); returns also the memory that the input was staged in.
    ///
    /// # Errors
    ///
    /// As there.
    #[allow(clippy::type_complexity, reason = "two results")]
    pub(crate) fn finish_with_staging(
        &self,
        pending: PendingRun,
        timing: Option<&mut Timing>,
    ) -> Result<(Vec<(OutputKind, Array2<f32>)>, Vec<Staging>)> {
        match (self, pending) {
            (
                _,
                PendingRun::Ready {
                    outputs,
                    timing: taken,
                    memory,
                },
            ) => {
                if let Some(timing) = timing {
                    timing.merge(&taken);
                }
                Ok((outputs, memory.map(Staging::Host).into_iter().collect()))
            }
            (Self::Hip { executor, .. }, PendingRun::Hip(running)) => {
                let Finished { outputs, memory } = match timing {
                    Some(timing) => {
                        let plan = running.plan().clone();
                        executor.finish(*running, Some(&mut observer(&plan, timing)))
                    }
                    None => executor.finish(*running, None),
                }?;
                Ok((outputs, memory.into_iter().map(Staging::Pinned).collect()))
            }
            (Self::Pipeline { executor, .. }, PendingRun::Pipeline(running)) => {
                let Finished { outputs, memory } = match timing {
                    Some(timing) => {
                        let plans: Vec<Arc<Plan>> = running.plans().cloned().collect();
                        let mut observe = |index: usize, stage: Stage<'_>, time| {
                            if let Some(plan) = plans.get(index) {
                                observer(plan, timing)(stage, time);
                            }
                        };
                        executor.finish(*running, Some(&mut observe))
                    }
                    None => executor.finish(*running, None),
                }?;
                Ok((outputs, memory.into_iter().map(Staging::Pinned).collect()))
            }
            (Self::Tensor { executor, .. }, PendingRun::Tensor(running)) => {
                let TensorFinished { outputs, memory } = match timing {
                    Some(timing) => {
                        let mut observe =
                            |plan: &Plan, stage: Stage<'_>, time| observer(plan, timing)(stage, time);
                        executor.finish(running, Some(&mut observe))
                    }
                    None => executor.finish(running, None),
                }?;
                Ok((outputs, memory.map(Staging::Host).into_iter().collect()))
            }
            _ => Err(foreign("run")),
        }
    }

    /// As [`finish`](Self::finish), of a run on one GPU whose results stay there; see [`HipExecutor::finish_on_device`].
    ///
    /// # Errors
    ///
    /// As there; [`Error::Argument`] if the run is not on one GPU.
    pub(crate) fn finish_on_device(
        &self,
        pending: PendingRun,
        timing: Option<&mut Timing>,
        keep: &mut KeepResult<'_>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        let (Self::Hip { executor, .. }, PendingRun::Hip(running)) = (self, pending) else {
            return Err(foreign("run"));
        };
        let plan = running.plan().clone();
        let Finished { outputs, memory } = match timing {
            Some(timing) => executor.finish_on_device(*running, Some(&mut observer(&plan, timing)), keep),
            None => executor.finish_on_device(*running, None, keep),
        }?;
        executor.keep(memory);
        Ok(outputs)
    }

    /// How runs on a GPU were carried out; `None` on the CPU.
    pub fn replays(&self) -> Option<Replays> {
        match self {
            Self::Cpu { .. } => None,
            Self::Hip { executor, .. } => Some(executor.replays()),
            Self::Tensor { executor, .. } => executor.replays(),
            Self::Pipeline { executor, .. } => executor.replays(),
        }
    }

    /// The executor of the GPU that takes the input.
    fn entry(&self) -> Result<&HipExecutor> {
        match self {
            Self::Hip { executor, .. } => Ok(executor),
            Self::Pipeline { executor, .. } => executor.first(),
            Self::Cpu { .. } | Self::Tensor { .. } => Err(foreign("memory")),
        }
    }
}

/// What a run on one GPU, or on the first of several, takes its input from.
fn device_feed<'a>(feed: RunFeed<'a>, plan: &Plan) -> Result<Feed<'a>> {
    Ok(match feed {
        RunFeed::Input(input) => {
            plan.graph().check_input(input, plan.batch())?;
            Feed::Pageable(input_bytes(input))
        }
        RunFeed::Staged(Staging::Pinned(pixels)) => Feed::Pinned(pixels),
        RunFeed::Staged(Staging::Host(_)) => return Err(foreign("staging")),
        RunFeed::Images(images) => Feed::Images(images),
        RunFeed::Device(memory) => Feed::Device(memory),
    })
}

/// The input of a plan that takes activations, in its dtype, where that is not the host's.
fn activations(feed: &RunFeed<'_>, plan: &Plan) -> Result<Option<Vec<u8>>> {
    let RunFeed::Input(input @ Input::Values(values)) = *feed else {
        return Ok(None);
    };
    if !plan.graph().takes_activations() {
        return Ok(None);
    }
    plan.graph().check_input(input, plan.batch())?;
    let narrow = |convert: fn(f32) -> u16| values.iter().flat_map(|&v| convert(v).to_le_bytes()).collect();
    Ok(match plan.dtype() {
        DType::F16 => Some(narrow(|value| f16::from_f32(value).to_bits())),
        DType::BF16 => Some(narrow(|value| bf16::from_f32(value).to_bits())),
        _ => None,
    })
}

fn input_bytes(input: Input<'_>) -> &[u8] {
    match input {
        Input::Pixels(pixels) => pixels,
        Input::Values(values) => bytemuck::cast_slice(values),
    }
}

/// Adds each stage of a run on a GPU to the timing.
fn observer<'a>(plan: &Plan, timing: &'a mut Timing) -> impl FnMut(Stage<'_>, Duration) + Send + 'a {
    let roles: Vec<Role> = plan.graph().nodes().iter().map(|node| node.role).collect();
    move |stage, time| {
        let phase = match stage {
            Stage::Upload => Phase::CopyIn,
            Stage::Resize => Phase::DeviceResize,
            Stage::Step(step) => Phase::Step(roles[step.node]),
            Stage::Replay => Phase::Replay,
            Stage::Download => Phase::CopyOut,
        };
        timing.add(phase, time);
    }
}

fn foreign(argument: &'static str) -> Error {
    Error::argument(argument, "is of another executor")
}
