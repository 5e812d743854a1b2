//! Either executor, as a session has it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ndarray::Array2;
use rayon::ThreadPool;

use super::cpu::{CpuExecutor, thread_pool};
use super::hip::{HipExecutor, Stage};
use super::{Arena, Input};
use crate::error::Result;
use crate::graph::plan::Plan;
use crate::graph::{DType, Graph, OutputKind};
use crate::hip::Device;
use crate::timing::{Phase, Timing};

/// Runs plans of one graph, on the CPU or on a GPU. Can be shared between threads.
#[derive(Debug)]
pub enum Executor {
    /// On the CPU.
    Cpu {
        /// The executor.
        executor: CpuExecutor,
        /// Arenas that no run is using now.
        arenas: Mutex<Vec<Arena>>,
    },
    /// On a GPU.
    Hip {
        /// The executor.
        executor: Box<HipExecutor>,
        /// For what is done on the host.
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

    /// On a GPU, see [`HipExecutor::new`]; `threads` are for what is done on the host.
    ///
    /// # Errors
    ///
    /// As there, or the threads cannot be started.
    pub fn hip(graph: &Graph, device: &Device, dtype: DType, threads: Option<usize>) -> Result<Self> {
        Ok(Self::Hip {
            executor: Box::new(HipExecutor::new(graph, device, dtype)?),
            threads: thread_pool(threads)?,
        })
    }

    /// The number of threads for what is done on the host.
    pub fn threads(&self) -> usize {
        match self {
            Self::Cpu { executor, .. } => executor.threads(),
            Self::Hip { threads, .. } => threads.current_num_threads(),
        }
    }

    /// Runs `work` on the host with this executor's threads: what it does in parallel uses no others.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu { executor, .. } => executor.install(work),
            Self::Hip { threads, .. } => threads.install(work),
        }
    }

    /// Runs `plan` on `input`, adding to `timing` what each phase took: each output as `[B, channels]`.
    ///
    /// # Errors
    ///
    /// See [`CpuExecutor::run`] and [`HipExecutor::run`].
    pub fn run(
        &self,
        plan: &Plan,
        input: Input<'_>,
        timing: &mut Timing,
    ) -> Result<Vec<(OutputKind, Array2<f32>)>> {
        let role = |node: usize| plan.graph().nodes()[node].role;
        match self {
            Self::Cpu { executor, arenas } => {
                let arenas = || arenas.lock().unwrap_or_else(PoisonError::into_inner);
                let mut arena = arenas().pop().unwrap_or_default();
                let start = Instant::now();
                let mut steps = Duration::ZERO;
                let results = executor.run(
                    plan,
                    input,
                    &mut arena,
                    Some(&mut |step, time| {
                        timing.add(Phase::Step(role(step.node)), time);
                        steps += time;
                    }),
                )?;
                timing.add(Phase::Readback, start.elapsed().saturating_sub(steps));
                arenas().push(arena);
                Ok(results)
            }
            Self::Hip { executor, .. } => executor.run(
                plan,
                input,
                Some(&mut |stage, time| {
                    let phase = match stage {
                        Stage::Upload => Phase::Copy,
                        Stage::Step(step) => Phase::Step(role(step.node)),
                        Stage::Download => Phase::Readback,
                    };
                    timing.add(phase, time);
                }),
            ),
        }
    }
}
