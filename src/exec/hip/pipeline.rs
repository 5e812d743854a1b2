//! Pipeline parallelism: the [stages](crate::graph::stages()) of a model on one GPU each.
//!
//! A batch is submitted to all stages at once. Each stage's stream copies the activations of the previous stage from GPU to GPU once they
//! are written; no host thread waits. Several batches in flight, each with its own execution contexts, keep all stages busy. A stage
//! computes them one after the other, in the order of submission. Batches are not split, so the results have the same bits as on one GPU.
//!
//! Each stage captures its steps as a graph. The copy of activations is not part of it, and precedes each replay. Replays are checked as on
//! one GPU ([`GraphMode`](crate::exec::GraphMode)), including the activations for the next stage. After a wrong replay, its stage and all
//! later stages are computed again, and all stages submit their steps one by one from then on. The activations are overwritten before a
//! replay. If the replay does not write them, the results are NaN, and NaN in logits or embeddings triggers a recomputation.
//!
//! With [tensor parallelism](super::tensor), each rank is such an executor over the rank's shards of all stages.

use std::sync::{Arc, OnceLock};

use super::executor::HipExecutor;
use super::reserve::Reserved;
use super::run::{Running, Waited, phase_observer};
use crate::error::{Error, Result};
use crate::exec::executor::{
    Executor, ExecutorInfo, FinishOptions, Finished, PendingRun, Reservation, Statistics, Submission,
};
use crate::exec::input::{InputData, Inputs};
use crate::exec::options::ExecutorOptions;
use crate::exec::plans::Plans;
use crate::exec::replays::{GraphSwitch, Replays};
use crate::exec::slabs::Slabs;
use crate::exec::staging::Staging;
use crate::exec::threads::HostThreads;
use crate::graph::plan::Plan;
use crate::graph::{self, Graph, stages};
use crate::hip::{Device, Event};

/// Runs the stages of a model on several GPUs.
#[derive(Debug)]
pub struct PipelineExecutor {
    info: ExecutorInfo,
    /// Plans of the whole model.
    plans: Arc<Plans>,
    stages: Vec<StageExecutor>,
}

#[derive(Debug)]
struct StageExecutor {
    executor: Arc<HipExecutor>,
    /// Indices of the model's outputs that this stage computes.
    outputs: Vec<usize>,
}

impl PipelineExecutor {
    /// Divides `graph`, which is [optimised](crate::graph::optimize), into one stage per device.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the model, if it cannot be divided into as many stages. The errors of [`HipExecutor::new`].
    pub fn new(graph: &Graph, devices: &[Device], options: &ExecutorOptions) -> Result<Self> {
        let first = devices.first();
        let first = first.ok_or_else(|| Error::argument("devices", "no GPU is named"))?;
        let host = HostThreads::near(first, options.threads)?;
        let parts = stages(graph, devices.len())?.into_iter().zip(devices);
        let stage = |(index, (part, device)): (usize, (graph::Stage, &Device))| {
            let options = ExecutorOptions {
                resize: options.resize.clone().filter(|_| index == 0),
                ..options.clone()
            };
            let executor = HipExecutor::of_share(&part.graph, device, host.clone(), &options)?;
            Ok((part, executor))
        };
        let parts = parts.enumerate().map(stage).collect::<Result<_>>()?;
        Self::of_stages(Arc::new(Plans::new(graph, options.dtype)), parts)
    }

    /// Builds an executor from at least one stage. `plans` are the plans of the whole model.
    pub(super) fn of_stages(plans: Arc<Plans>, stages: Vec<(graph::Stage, HipExecutor)>) -> Result<Self> {
        for pair in stages.windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(|(_, executor)| executor.device());
            // Without peer access, copies go through the host.
            if after.can_access_peer(before)? {
                after.enable_peer_access(before)?;
            }
        }
        let infos: Vec<&ExecutorInfo> = stages.iter().map(|(_, executor)| executor.info()).collect();
        let Some(&first) = infos.first() else {
            return Err(Error::internal("pipeline", "has no stage"));
        };
        let info = ExecutorInfo {
            devices: infos.iter().flat_map(|info| info.devices.clone()).collect(),
            graph: plans.graph().clone(),
            in_flight: stages.len() + 1,
            weight_bytes: infos.iter().flat_map(|info| info.weight_bytes.clone()).collect(),
            graphs: GraphSwitch::new(first.graphs.get()),
            ..first.clone()
        };
        let fallback = Arc::<OnceLock<String>>::default();
        let in_order = stages.len() > 1;
        let stage = |(part, mut executor): (graph::Stage, HipExecutor)| {
            executor.set_stage(info.graphs.clone(), fallback.clone(), in_order);
            StageExecutor {
                executor: Arc::new(executor),
                outputs: part.outputs,
            }
        };
        Ok(Self {
            stages: stages.into_iter().map(stage).collect(),
            info,
            plans,
        })
    }

    /// Submits a run to all stages.
    fn submit(
        &self,
        reserved: Vec<Reserved>,
        input: InputData<'_>,
        submission: Submission,
    ) -> Result<Vec<Running>> {
        let mut runs: Vec<Running> = Vec::with_capacity(self.stages.len());
        let mut input = Some(input);
        for (stage, reserved) in self.stages.iter().zip(reserved) {
            let input = match input.take() {
                Some(input) => input,
                None => {
                    let left = runs.last().and_then(Running::boundary);
                    let missing = || Error::internal("pipeline", "a stage leaves nothing for the next");
                    InputData::Peer(left.ok_or_else(missing)?)
                }
            };
            let run = stage.executor.submit(reserved, input, submission);
            runs.push(stage.with_rank(run)?);
        }
        Ok(runs)
    }

    /// Checks the replays of a run, stage by stage. All stages after a wrong replay used its activations.
    fn check(&self, waited: &mut [Waited]) -> Result<()> {
        // A single stage detects unwritten results itself.
        let suspect = self.stages.len() > 1 && waited.iter().any(Waited::have_nan);
        let mut wrong = false;
        for (index, stage) in self.stages.iter().enumerate() {
            let (before, rest) = waited.split_at_mut(index);
            let Some(run) = rest.first_mut() else { break };
            match before.last().and_then(Waited::boundary).filter(|_| wrong) {
                Some(input) => stage.with_rank(stage.executor.repeat(run, input))?,
                None => wrong = stage.with_rank(stage.executor.check(run, suspect))?,
            }
        }
        Ok(())
    }
}

impl StageExecutor {
    /// Adds the rank to the error of a rank.
    fn with_rank<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.executor.with_rank(error))
    }
}

impl Executor for PipelineExecutor {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        self.plans.get(batch)
    }

    fn stage(&self, bytes: usize, capacity: usize) -> Result<Staging> {
        self.stages[0].executor.stage(bytes, capacity)
    }

    fn slabs(&self) -> Option<Arc<Slabs>> {
        self.stages[0].executor.slabs()
    }

    fn reserve(self: Arc<Self>, plan: &Arc<Plan>, _near: Option<&Staging>) -> Result<Box<dyn Reservation>> {
        let reserve = |stage: &StageExecutor| {
            let plan = stage.executor.plan(plan.batch())?;
            let context = stage.executor.reserve_context(&plan)?;
            Ok(Reserved { plan, context })
        };
        let stages = self.stages.iter().map(reserve).collect::<Result<_>>()?;
        Ok(Box::new(PipelineReservation {
            executor: self,
            plan: plan.clone(),
            stages,
        }))
    }

    /// Counts a run as replayed if all stages replayed it.
    fn statistics(&self) -> Statistics {
        let stages = self.stages.iter().map(|stage| stage.executor.replays());
        let replays = stages.reduce(|all, one| Replays {
            replayed_runs: all.replayed_runs.min(one.replayed_runs),
            eager_runs: all.eager_runs.max(one.eager_runs),
            checked_runs: all.checked_runs.max(one.checked_runs),
            // Counted once per run, by the stage of the wrong replay.
            recomputed_runs: all.recomputed_runs + one.recomputed_runs,
            ..all
        });
        Statistics {
            replays,
            images: Vec::new(),
        }
    }
}

/// Memory for a run on all stages.
struct PipelineReservation {
    executor: Arc<PipelineExecutor>,
    plan: Arc<Plan>,
    stages: Vec<Reserved>,
}

impl Reservation for PipelineReservation {
    fn submit(self: Box<Self>, inputs: Inputs<'_>, submission: Submission) -> Result<Box<dyn PendingRun>> {
        let Self {
            executor,
            plan,
            stages,
        } = *self;
        let stages = executor.submit(stages, inputs.only(&plan)?, submission)?;
        Ok(Box::new(PipelineRun { executor, stages }))
    }
}

/// A run that was submitted to all stages.
struct PipelineRun {
    executor: Arc<PipelineExecutor>,
    stages: Vec<Running>,
}

impl PendingRun for PipelineRun {
    fn is_done(&self) -> Result<bool> {
        Ok(self.end().map_or(Ok(true), |end| end.is_done())?)
    }

    fn end(&self) -> Option<Event> {
        self.stages.last().and_then(Running::end)
    }

    fn finish(self: Box<Self>, options: FinishOptions<'_>) -> Result<Finished> {
        let Self { executor, stages } = *self;
        let mut timing = options.timing;
        let waited = executor.stages.iter().zip(stages);
        let waited = waited.map(|(stage, run)| stage.with_rank(stage.executor.wait(run)));
        let mut waited = waited.collect::<Result<Vec<_>>>()?;
        executor.check(&mut waited)?;
        let mut outputs = Vec::new();
        let mut staging = None;
        for (stage, waited) in executor.stages.iter().zip(waited) {
            let plan = waited.plan.clone();
            let finished = stage.with_rank(match timing.as_deref_mut() {
                Some(timing) => stage
                    .executor
                    .conclude(waited, Some(&mut phase_observer(&plan, timing))),
                None => stage.executor.conclude(waited, None),
            })?;
            outputs.extend(stage.outputs.iter().copied().zip(finished.outputs));
            staging = staging.or(finished.staging);
        }
        outputs.sort_by_key(|(index, _)| *index);
        Ok(Finished {
            outputs: outputs.into_iter().map(|(_, output)| output).collect(),
            staging,
        })
    }
}
