//! Pipeline parallelism: each GPU runs one [stage](crate::graph::stages()) of the model.
//!
//! The host submits a batch to all stages without waiting. When the activations of a stage are complete, the stream of the next stage
//! copies them from GPU to GPU. Several batches in flight keep all stages busy. A batch has its own execution context on each stage. A stage
//! computes the batches one after the other, in the order of submission. Batches are not split, so the results are bit-identical to those
//! of one GPU.
//!
//! # Replays
//!
//! Each stage captures its steps as a HIP graph. The copy of the activations is not captured, and precedes each replay. Replays are checked
//! as on one GPU ([`GraphMode`](crate::exec::GraphMode)). The check includes the activations for the next stage.
//!
//! After a wrong replay, its stage and all later stages are computed again. From then on, all stages submit their steps one by one.
//!
//! The activations for the next stage are overwritten with NaN before each replay. If a replay does not write them, the logits or embeddings
//! contain NaN, and the run is computed again.
//!
//! # Tensor parallelism
//!
//! With [tensor parallelism](super::tensor), each rank has a pipeline executor. It runs the rank's shards of all stages.

use std::sync::{Arc, OnceLock};

use super::context::Reserved;
use super::executor::HipExecutor;
use super::run::{CompletedRun, Running, phase_observer};
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
use crate::exec::states::check_divisible;
use crate::exec::threads::HostThreads;
use crate::graph::plan::Plan;
use crate::graph::{self, Graph, stages};
use crate::hip::{Device, Event};

/// Runs a model on several GPUs, one stage per GPU.
#[derive(Debug)]
pub struct PipelineExecutor {
    info: ExecutorInfo,
    /// Plans of the whole model.
    plans: Arc<Plans>,
    stages: Vec<StageExecutor>,
}

/// Executor of one stage.
#[derive(Debug)]
struct StageExecutor {
    executor: Arc<HipExecutor>,
    /// Indices of the model's outputs that this stage computes.
    outputs: Vec<usize>,
}

impl PipelineExecutor {
    /// Divides an [optimised](crate::graph::optimize) graph into one stage per device.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `devices` is empty, or if the model cannot be divided into that many stages. Also returns the errors of
    /// [`HipExecutor::new`].
    pub fn new(graph: &Graph, devices: &[Device], options: &ExecutorOptions) -> Result<Self> {
        let first = devices.first();
        let first =
            first.ok_or_else(|| Error::argument("devices", "the list is empty. Name at least one GPU"))?;
        check_divisible(graph)?;
        let host = HostThreads::near(first, options.threads)?;
        let parts = stages(graph, devices.len())?.into_iter().zip(devices);
        let create = |(index, (part, device)): (usize, (graph::Stage, &Device))| {
            let options = ExecutorOptions {
                resize: options.resize.clone().filter(|_| index == 0),
                ..options.clone()
            };
            let executor = HipExecutor::of_share(&part.graph, device, host.clone(), &options)?;
            Ok((part, executor))
        };
        let parts = parts.enumerate().map(create).collect::<Result<_>>()?;
        Self::of_stages(Arc::new(Plans::new(graph, options.dtype)), parts)
    }

    /// Creates an executor from its stages, at least one. `plans` contains the plans of the whole model.
    pub(super) fn of_stages(plans: Arc<Plans>, stages: Vec<(graph::Stage, HipExecutor)>) -> Result<Self> {
        for pair in stages.windows(2) {
            let [source, target] = [&pair[0], &pair[1]].map(|(_, executor)| executor.device());
            // Without peer access, HIP copies through the host.
            if target.can_access_peer(source)? {
                target.enable_peer_access(source)?;
            }
        }
        let infos: Vec<&ExecutorInfo> = stages.iter().map(|(_, executor)| executor.info()).collect();
        let Some(&first) = infos.first() else {
            return Err(Error::internal("pipeline", "the model has no stages"));
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
        let into_stage = |(part, mut executor): (graph::Stage, HipExecutor)| {
            executor.set_stage(info.graphs.clone(), fallback.clone(), in_order);
            StageExecutor {
                executor: Arc::new(executor),
                outputs: part.outputs,
            }
        };
        Ok(Self {
            stages: stages.into_iter().map(into_stage).collect(),
            info,
            plans,
        })
    }

    /// Submits a run to all stages, without waiting.
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
                    let activations = runs.last().and_then(Running::boundary);
                    let missing =
                        || Error::internal("pipeline", "a stage has no activations for the next stage");
                    InputData::Peer(activations.ok_or_else(missing)?)
                }
            };
            let run = stage.executor.submit(reserved, input.into(), submission);
            runs.push(stage.with_rank(run)?);
        }
        Ok(runs)
    }

    /// Checks the replays of a run in the order of the stages. After a wrong replay, computes all later stages again.
    ///
    /// `runs` contains the run of each stage.
    fn check(&self, runs: &mut [CompletedRun]) -> Result<()> {
        // A single stage detects results that its replay did not write.
        let mut suspect = false;
        if self.stages.len() > 1 {
            for run in &*runs {
                suspect |= run.have_nan()?;
            }
        }
        let mut wrong = false;
        for (index, stage) in self.stages.iter().enumerate() {
            let (previous, rest) = runs.split_at_mut(index);
            let Some(run) = rest.first_mut() else { break };
            match previous.last().and_then(CompletedRun::boundary).filter(|_| wrong) {
                Some(input) => stage.with_rank(stage.executor.repeat(run, input))?,
                None => wrong = stage.with_rank(stage.executor.check(run, suspect))?,
            }
        }
        Ok(())
    }
}

impl StageExecutor {
    /// With tensor parallelism, adds the rank to an error.
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
        let reserve_stage = |stage: &StageExecutor| {
            let plan = stage.executor.plan(plan.batch())?;
            let context = stage.executor.reserve_context(&plan, None)?;
            Ok(Reserved { plan, context })
        };
        let stages = self.stages.iter().map(reserve_stage).collect::<Result<_>>()?;
        Ok(Box::new(PipelineReservation {
            executor: self,
            plan: plan.clone(),
            stages,
        }))
    }

    /// Returns the statistics of all stages. A run counts as replayed if all stages replayed it.
    fn statistics(&self) -> Statistics {
        let stages = self.stages.iter().map(|stage| stage.executor.replays());
        let replays = stages.reduce(|total, stage| Replays {
            replayed_runs: total.replayed_runs.min(stage.replayed_runs),
            eager_runs: total.eager_runs.max(stage.eager_runs),
            checked_runs: total.checked_runs.max(stage.checked_runs),
            // Only the stage with the wrong replay counts the run.
            recomputed_runs: total.recomputed_runs + stage.recomputed_runs,
            ..total
        });
        Statistics {
            replays,
            images: Vec::new(),
        }
    }
}

/// Reserved memory for a run on all stages.
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
        let pairs = executor.stages.iter().zip(stages);
        let runs = pairs.map(|(stage, run)| stage.with_rank(stage.executor.wait(run)));
        let mut runs = runs.collect::<Result<Vec<_>>>()?;
        executor.check(&mut runs)?;
        let mut outputs = Vec::new();
        let mut staging = None;
        for (stage, run) in executor.stages.iter().zip(runs) {
            let plan = run.plan.clone();
            let finished = stage.with_rank(match timing.as_deref_mut() {
                Some(timing) => stage
                    .executor
                    .collect_results(run, Some(&mut phase_observer(&plan, timing))),
                None => stage.executor.collect_results(run, None),
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
