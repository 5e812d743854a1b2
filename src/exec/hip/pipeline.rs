//! Pipeline parallelism: a model's [stages](crate::graph::stages()), each on a GPU of its own.
//!
//! A batch goes through the stages one after the other, and is submitted to all of them at once: what a stage leaves is copied
//! from GPU to GPU when it is there, by the receiver's stream, and nobody on the host waits. Several batches in flight keep all
//! stages busy, each in execution contexts of its own, so that one is copied while another computes; a stage computes them one after the
//! other, in the order of submission. A batch is computed whole, so the results have the bits that one GPU gives.
//!
//! Each stage captures its steps, and replays them behind the copy, which is no part of the graph. Replays are checked as on one GPU
//! ([`GraphMode`]), with what they hand on: a stage whose replay was wrong is computed again, then all stages behind it, and from then
//! on every stage runs step by step. What a stage hands on is overwritten before a replay, too. If the replay does not write it, the results
//! are NaN, and logits or embeddings with NaN are computed again.
//!
//! With [tensor parallelism](super::tensor) there is such an executor for each rank, whose stages are the rank's shares.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rayon::ThreadPool;

use super::run::Waited;
use super::{Feed, Finished, GraphMode, HipExecutor, Replays, Reserved, Running, Submission};
use crate::error::{Error, Result};
use crate::exec::select::SelectOptions;
use crate::graph::plan::Plan;
use crate::graph::{self, Graph, stages};
use crate::hip::{Device, Event};
use crate::image::Preprocess;
use crate::tensor::DType;

/// Runs the stages of a model on several GPUs.
#[derive(Debug)]
pub struct PipelineExecutor {
    stages: Vec<StageExecutor>,
}

#[derive(Debug)]
struct StageExecutor {
    executor: HipExecutor,
    graph: Arc<Graph>,
    /// Which of the model's outputs it computes.
    outputs: Vec<usize>,
    plans: Mutex<HashMap<usize, Arc<Plan>>>,
}

/// Contexts of all stages with the memory for a run.
pub(crate) struct PipelineReserved(Vec<Reserved<Arc<Plan>>>);

/// A run that was submitted to all stages.
pub(crate) struct PipelineRun(Vec<Running<Arc<Plan>>>);

impl PipelineRun {
    /// Where the last stage has done with it.
    pub(in crate::exec) fn end(&self) -> Option<Event> {
        self.0.last().and_then(Running::end)
    }

    /// Each stage's plan.
    pub(in crate::exec) fn plans(&self) -> impl Iterator<Item = &Arc<Plan>> {
        self.0.iter().map(Running::plan)
    }
}

impl PipelineExecutor {
    /// Cuts `graph`, which has been [optimised](crate::graph::optimize), into a stage for each of the `devices`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the model, if it cannot be cut into as many; as [`HipExecutor::new`].
    pub fn new(graph: &Graph, devices: &[Device], dtype: DType) -> Result<Self> {
        let parts = stages(graph, devices.len())?.into_iter().zip(devices);
        let stage = |(part, device): (graph::Stage, &Device)| {
            let executor = HipExecutor::of_share(&part.graph, device, dtype)?;
            Ok((part, executor))
        };
        Self::of_stages(parts.map(stage).collect::<Result<_>>()?)
    }

    /// Of stages with their executors.
    pub(super) fn of_stages(stages: Vec<(graph::Stage, HipExecutor)>) -> Result<Self> {
        for pair in stages.windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(|(_, executor)| executor.device());
            // Copies go through the host where it is not to be had.
            if after.can_access_peer(before)? {
                after.enable_peer_access(before)?;
            }
        }
        let fallback = Arc::<OnceLock<String>>::default();
        let several = stages.len() > 1;
        let stage = |(part, mut executor): (graph::Stage, HipExecutor)| {
            executor.fallback = fallback.clone();
            // The runs of a rank are on one stream.
            if several && executor.rank.is_none() {
                executor.take_turns();
            }
            let mut graph = part.graph;
            graph.release_constants();
            StageExecutor {
                executor,
                graph: Arc::new(graph),
                outputs: part.outputs,
                plans: Mutex::default(),
            }
        };
        Ok(Self {
            stages: stages.into_iter().map(stage).collect(),
        })
    }

    /// The GPUs, by stage.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.stages.iter().map(|stage| stage.executor.device())
    }

    /// The bytes that the weights of each stage take.
    pub fn weight_bytes(&self) -> Vec<usize> {
        self.stages
            .iter()
            .map(|stage| stage.executor.weight_bytes())
            .collect()
    }

    /// How many batches keep all stages busy while one more is copied in.
    pub(in crate::exec) fn in_flight(&self) -> usize {
        self.stages.len() + 1
    }

    /// How the runs so far were carried out: replayed are those that all stages replayed.
    pub(in crate::exec) fn replays(&self) -> Option<Replays> {
        let stages = self.stages.iter().map(|stage| stage.executor.replays());
        stages.reduce(|all, one| Replays {
            replayed_runs: all.replayed_runs.min(one.replayed_runs),
            eager_runs: all.eager_runs.max(one.eager_runs),
            checked_runs: all.checked_runs.max(one.checked_runs),
            // Once for a run: the stages behind the one that was wrong do not count it.
            recomputed_runs: all.recomputed_runs + one.recomputed_runs,
            ..all
        })
    }

    /// Sets whether the stages replay captured graphs.
    pub(in crate::exec) fn set_graphs(&mut self, mode: GraphMode) {
        for stage in &mut self.stages {
            stage.executor.set_graphs(mode);
        }
    }

    pub(in crate::exec) fn set_selection(&mut self, options: SelectOptions) {
        for stage in &mut self.stages {
            stage.executor.set_selection(options);
        }
    }

    /// Makes the first GPU resize images.
    pub(in crate::exec) fn set_resize(&mut self, rule: &Preprocess) -> Result<()> {
        self.stages
            .first_mut()
            .map_or(Ok(()), |stage| stage.executor.set_resize(rule))
    }

    /// What takes the input.
    pub(in crate::exec) fn first(&self) -> Result<&HipExecutor> {
        let first = self.stages.first().map(|stage| &stage.executor);
        first.ok_or_else(|| Error::argument("pipeline", "has no stage"))
    }

    /// Memory for a run of `batch` images on all stages.
    pub(in crate::exec) fn reserve(&self, batch: usize) -> Result<PipelineReserved> {
        let reserved = self
            .stages
            .iter()
            .map(|stage| stage.executor.reserve(stage.plan(batch)?));
        Ok(PipelineReserved(reserved.collect::<Result<_>>()?))
    }

    /// Submits a run to all stages.
    pub(in crate::exec) fn submit(
        &self,
        reserved: PipelineReserved,
        feed: Feed<'_>,
        threads: &ThreadPool,
        how: Submission,
    ) -> Result<PipelineRun> {
        let mut runs: Vec<Running<Arc<Plan>>> = Vec::with_capacity(self.stages.len());
        let mut feed = Some(feed);
        for (stage, reserved) in self.stages.iter().zip(reserved.0) {
            let feed = match feed.take() {
                Some(feed) => feed,
                None => {
                    let left = runs.last().and_then(Running::boundary);
                    let missing = || Error::argument("pipeline", "a stage leaves nothing for the next");
                    Feed::Activations(left.ok_or_else(missing)?)
                }
            };
            let run = stage.executor.submit(reserved, feed, threads, how);
            runs.push(stage.named(run)?);
        }
        Ok(PipelineRun(runs))
    }

    /// Waits for a run: the results in the order that the whole model has. `observe` is called with the stage's index, and with
    /// what it took.
    #[allow(clippy::type_complexity, reason = "what observes a run")]
    pub(in crate::exec) fn finish(
        &self,
        run: PipelineRun,
        mut observe: Option<&mut (dyn FnMut(usize, super::Stage<'_>, Duration) + Send)>,
    ) -> Result<Finished> {
        let stages = self.stages.iter().zip(run.0);
        let waited = stages.map(|(stage, running)| stage.named(stage.executor.wait(running)));
        let mut waited = waited.collect::<Result<Vec<_>>>()?;
        self.check(&mut waited)?;
        let mut outputs = Vec::new();
        let mut memory = Vec::new();
        for (index, (stage, waited)) in self.stages.iter().zip(waited).enumerate() {
            let finished = stage.named(match &mut observe {
                Some(observe) => {
                    let mut of_stage = |part: super::Stage<'_>, time| observe(index, part, time);
                    stage.executor.conclude(waited, Some(&mut of_stage))
                }
                None => stage.executor.conclude(waited, None),
            })?;
            outputs.extend(stage.outputs.iter().copied().zip(finished.outputs));
            memory.extend(finished.memory);
        }
        outputs.sort_by_key(|(index, _)| *index);
        Ok(Finished {
            outputs: outputs.into_iter().map(|(_, output)| output).collect(),
            memory,
        })
    }

    /// Checks the replays of a run, stage by stage: whatever follows a wrong one has computed with its activations.
    fn check(&self, waited: &mut [Waited<Arc<Plan>>]) -> Result<()> {
        // Of a single stage, what is unwritten is found in its results.
        let suspect = self.stages.len() > 1 && waited.iter().any(Waited::have_nan);
        let mut wrong = false;
        for (index, stage) in self.stages.iter().enumerate() {
            let (before, rest) = waited.split_at_mut(index);
            let Some(run) = rest.first_mut() else { break };
            match before.last().and_then(Waited::boundary).filter(|_| wrong) {
                Some(input) => stage.named(stage.executor.repeat(run, input))?,
                None => wrong = stage.named(stage.executor.check(run, suspect))?,
            }
        }
        Ok(())
    }
}

impl StageExecutor {
    /// As it is, but for an error of a rank, which names it.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.executor.named(error))
    }

    fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        let mut plans = self.plans.lock();
        if let Some(plan) = plans.get(&batch) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::new(self.graph.clone(), batch, self.executor.dtype())?);
        plans.insert(batch, plan.clone());
        Ok(plan)
    }
}
