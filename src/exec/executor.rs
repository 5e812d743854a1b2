//! The executor of a session: the CPU's or a GPU's.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ndarray::Array2;
use parking_lot::Mutex;
use rayon::ThreadPool;

use super::Arena;
use super::cpu::{CpuExecutor, cores, thread_pool};
use super::hip::{Feed, GraphMode, HipExecutor, Replays, Reserved, Running, Stage};
use super::select::SelectOptions;
use crate::error::{Error, Result};
use crate::graph::plan::{Plan, Step};
use crate::graph::{Graph, OutputKind, Role};
use crate::hip::{Device, PinnedBuffer};
use crate::image::{Preprocess, RgbImage};
use crate::tensor::{DType, Input};
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
        /// For work on the host.
        threads: ThreadPool,
    },
}

impl Executor {
    /// On the CPU, see [`CpuExecutor::new`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn cpu(graph: &Graph, threads: Option<usize>) -> Result<Self> {
        Ok(Self::Cpu {
            executor: CpuExecutor::new(graph, threads)?,
            arenas: Mutex::default(),
        })
    }

    /// On a GPU, see [`HipExecutor::new`]; `threads` are for work on the host.
    ///
    /// # Errors
    ///
    /// As there, or the threads cannot be started.
    pub fn hip(graph: &Graph, device: &Device, dtype: DType, threads: Option<usize>) -> Result<Self> {
        Ok(Self::Hip {
            executor: Box::new(HipExecutor::new(graph, device, dtype)?),
            threads: host_threads(device, threads)?,
        })
    }

    /// Sets whether runs replay captured graphs; no effect on the CPU.
    pub fn graphs(mut self, mode: GraphMode) -> Self {
        if let Self::Hip { executor, .. } = &mut self {
            executor.set_graphs(mode);
        }
        self
    }

    /// Sets how kernels are selected; no effect on the CPU.
    pub fn select(mut self, options: SelectOptions) -> Self {
        if let Self::Hip { executor, .. } = &mut self {
            executor.set_selection(options);
        }
        self
    }

    /// Makes a GPU resize images to the model's input size, by `rule`; no effect on the CPU.
    ///
    /// # Errors
    ///
    /// See [`HipExecutor::set_resize`].
    pub fn resize(mut self, rule: &Preprocess) -> Result<Self> {
        if let Self::Hip { executor, .. } = &mut self {
            executor.set_resize(rule)?;
        }
        Ok(self)
    }

    /// Whether a GPU resizes images.
    pub fn resizes(&self) -> bool {
        matches!(self, Self::Hip { executor, .. } if executor.resizes())
    }

    /// The number of threads for work on the host.
    pub fn threads(&self) -> usize {
        match self {
            Self::Cpu { executor, .. } => executor.threads(),
            Self::Hip { threads, .. } => threads.current_num_threads(),
        }
    }

    /// Runs `work` on the host within this executor's thread pool.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu { executor, .. } => executor.install(work),
            Self::Hip { threads, .. } => threads.install(work),
        }
    }

    /// Runs `plan` on `input`, adding the time of each phase to `timing`: each output as `[B, channels]`, or
    /// `[B·tokens, channels]`.
    ///
    /// # Errors
    ///
    /// See [`CpuExecutor::run`] and [`HipExecutor::run`].
    pub fn run(
        &self,
        plan: &Plan,
        input: Input<'_>,
        mut timing: Option<&mut Timing>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        match self {
            Self::Cpu { executor, arenas } => {
                let mut arena = arenas.lock().pop().unwrap_or_default();
                let start = Instant::now();
                let mut steps = Duration::ZERO;
                let mut observe = |step: &Step, time| {
                    if let Some(timing) = &mut timing {
                        timing.add(Phase::Step(plan.node(step).role), time);
                    }
                    steps += time;
                };
                let results = executor.run(plan, input, &mut arena, Some(&mut observe))?;
                if let Some(timing) = timing {
                    timing.add(Phase::CopyOut, start.elapsed().saturating_sub(steps));
                }
                arenas.lock().push(arena);
                Ok(results)
            }
            Self::Hip { executor, .. } => match timing {
                Some(timing) => executor.run(plan, input, Some(&mut observer(plan, timing))),
                None => executor.run(plan, input, None),
            },
        }
    }

    /// As [`run`](Self::run), on decoded images that the device [resizes](Self::resizes).
    ///
    /// # Errors
    ///
    /// See [`HipExecutor::run_images`]; [`Error::Argument`] on the CPU.
    pub fn run_images(
        &self,
        plan: &Plan,
        images: &[&RgbImage],
        timing: Option<&mut Timing>,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        match (self, timing) {
            (Self::Cpu { .. }, _) => Err(Error::argument("images", "the CPU executor takes resized pixels")),
            (Self::Hip { executor, .. }, Some(timing)) => {
                executor.run_images(plan, images, Some(&mut observer(plan, timing)))
            }
            (Self::Hip { executor, .. }, None) => executor.run_images(plan, images, None),
        }
    }

    /// Memory for a batch of `bytes` bytes of pixels, or for decoded images where a GPU resizes them; empty.
    ///
    /// # Errors
    ///
    /// There is no memory that a GPU can read.
    pub(crate) fn stage(&self, bytes: usize) -> Result<Staging> {
        let memory = match self {
            Self::Cpu { .. } => StagingMemory::Host(Vec::with_capacity(bytes)),
            Self::Hip { executor, .. } if executor.resizes() => StagingMemory::Decoded(Vec::new()),
            Self::Hip { executor, .. } => StagingMemory::Pinned(executor.stage(bytes)?),
        };
        Ok(Staging {
            memory,
            images: 0,
            filled: 0,
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
        })
    }

    /// Starts a run on the staged batch. On a GPU this returns at once; on the CPU when the run is finished.
    ///
    /// # Errors
    ///
    /// As [`Executor::run`], except for failures of the device's work, which [`finish`](Self::finish) reports.
    pub(crate) fn submit(
        &self,
        reservation: Reservation,
        staging: Staging,
        timed: bool,
    ) -> Result<PendingRun> {
        match (self, reservation, staging.memory) {
            (Self::Cpu { .. }, Reservation::Cpu(plan), StagingMemory::Host(pixels)) => {
                let mut timing = Timing::default();
                let observer = timed.then_some(&mut timing);
                let results = self.run(&plan, Input::Pixels(&pixels), observer)?;
                Ok(PendingRun::Ready(results, timing))
            }
            (Self::Hip { executor, .. }, Reservation::Hip(reserved), StagingMemory::Pinned(mut pixels)) => {
                pixels.set_len(staging.filled)?;
                let running = executor.submit(*reserved, Feed::Staged(pixels), timed)?;
                Ok(PendingRun::Hip(Box::new(running)))
            }
            (Self::Hip { executor, .. }, Reservation::Hip(reserved), StagingMemory::Decoded(images)) => {
                let running =
                    executor.submit(*reserved, Feed::Images(&images.iter().collect::<Vec<_>>()), timed)?;
                Ok(PendingRun::Hip(Box::new(running)))
            }
            _ => Err(Error::argument("staging", "is of another executor")),
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
        match (self, pending) {
            (_, PendingRun::Ready(results, taken)) => {
                if let Some(timing) = timing {
                    timing.merge(&taken);
                }
                Ok(results)
            }
            (Self::Hip { executor, .. }, PendingRun::Hip(running)) => match timing {
                Some(timing) => {
                    let plan = running.plan().clone();
                    executor.finish(*running, Some(&mut observer(&plan, timing)))
                }
                None => executor.finish(*running, None),
            },
            (Self::Cpu { .. }, PendingRun::Hip(_)) => Err(Error::argument("run", "is of another executor")),
        }
    }

    /// How runs on a GPU were carried out; `None` on the CPU.
    pub fn replays(&self) -> Option<Replays> {
        match self {
            Self::Cpu { .. } => None,
            Self::Hip { executor, .. } => Some(executor.replays()),
        }
    }
}

/// Threads on the NUMA node of the GPU, by default one per physical core there. That a thread cannot be bound costs speed
/// at most.
fn host_threads(device: &Device, threads: Option<usize>) -> Result<ThreadPool> {
    let node = device.numa_node().cloned();
    let bind = move || {
        if let Some(node) = &node {
            let _ = node.bind_thread();
        }
    };
    let threads = threads.or_else(|| {
        let count = || {
            bind();
            cores()
        };
        // A thread of its own, since the caller's stays where it is.
        thread::scope(|scope| scope.spawn(count).join()).ok()
    });
    // Not with the device itself: the pool's threads end some time after the pool.
    thread_pool(threads, bind)
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

/// Memory for a batch of images, filled one by one: pinned where a GPU copies from it.
#[derive(Debug)]
pub(crate) struct Staging {
    memory: StagingMemory,
    images: usize,
    /// Bytes of the pinned memory.
    filled: usize,
}

#[derive(Debug)]
enum StagingMemory {
    Host(Vec<u8>),
    Pinned(PinnedBuffer<u8>),
    /// Images of any size.
    Decoded(Vec<RgbImage>),
}

impl Staging {
    /// # Errors
    ///
    /// [`Error::Argument`] if the memory is full.
    pub(crate) fn push(&mut self, image: RgbImage) -> Result<()> {
        match &mut self.memory {
            StagingMemory::Host(memory) => memory.extend_from_slice(&image.data),
            StagingMemory::Pinned(memory) => {
                let end = self.filled + image.data.len();
                let place = memory.get_mut(self.filled..end);
                place
                    .ok_or_else(|| Error::argument("input", "is more than a batch"))?
                    .copy_from_slice(&image.data);
                self.filled = end;
            }
            StagingMemory::Decoded(images) => images.push(image),
        }
        self.images += 1;
        Ok(())
    }

    /// The number of images.
    pub(crate) fn images(&self) -> usize {
        self.images
    }
}

/// The memory for a run.
pub(crate) enum Reservation {
    Cpu(Arc<Plan>),
    Hip(Box<Reserved<Arc<Plan>>>),
}

/// A run that was submitted.
pub(crate) enum PendingRun {
    /// It has ended; with the time of each phase.
    Ready(Vec<(OutputKind, Array2<f32>)>, Timing),
    Hip(Box<Running<Arc<Plan>>>),
}
