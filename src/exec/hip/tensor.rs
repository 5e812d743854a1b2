//! Tensor parallelism: the [shards](crate::graph::shard()) of a model on one GPU each. With a pipeline, each of the
//! [stages](crate::graph::stages()) is divided among a group of GPUs.
//!
//! Each rank has a thread, which submits the rank's steps and waits for them, since the ranks wait for each other in every all-reduce. The
//! executor of a rank is a [`HipExecutor`] for a single stage, or a [`PipelineExecutor`](super::pipeline::PipelineExecutor) over the rank's
//! shards of all stages. Each rank passes the activations of its stage to the same rank of the next stage. Each link then carries one copy,
//! and no rank waits for a broadcast.
//!
//! All threads take the same actions in the same order. The first thread decides: it submits a run if one more may be in flight, and
//! otherwise waits for the oldest run. Without a pipeline one run is in flight at a time, since tensor parallelism is for latency. A failed
//! rank stops the others, and every later run returns an error that names the rank.
//!
//! Ranks may also be in several [processes](across) with one rank each, which follow rank 0's process.

mod across;
mod action;
mod agreement;
mod failure;
mod followers;
mod group;
mod link;
mod processes;
mod run;
mod spin;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use self::followers::Connected;
use self::group::{Group, Streams};
use self::link::Links;
pub use self::processes::Processes;
use self::run::{Results, Run};
use self::spin::spin;
use self::worker::{Other, Worker};
use super::executor::HipExecutor;
use crate::error::{Error, Result};
use crate::exec::executor::{
    Executor, ExecutorInfo, FinishOptions, Finished, PendingRun, Reservation, Statistics, Submission,
};
use crate::exec::input::{InputData, Inputs};
use crate::exec::options::ExecutorOptions;
use crate::exec::plans::Plans;
use crate::exec::replays::{GraphSwitch, Replays};
use crate::exec::staging::{Given, Staging};
use crate::exec::states::check_divisible;
use crate::exec::threads::HostThreads;
use crate::graph::plan::Plan;
use crate::graph::{Graph, shard_stages, stages};
use crate::hip::Device;
use crate::tensor::Input;

/// Interval between polls of the communicators for errors.
const ERROR_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which a caller spins before it sleeps, as latency matters most for short runs.
const SPIN_BUDGET: Duration = Duration::from_millis(10);

/// Interval between polls of the ranks after one has failed.
const RANK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs the shards of a model on several GPUs.
pub struct TensorExecutor {
    info: ExecutorInfo,
    /// Plans of the whole model.
    plans: Arc<Plans>,
    /// Executor of each rank's shards, on one GPU or on a pipeline.
    ranks: Vec<Arc<dyn Executor>>,
    threads: Vec<JoinHandle<()>>,
    /// Channel to the first rank, which decides the order of runs.
    runs: Option<Sender<Arc<Run>>>,
    group: Arc<Group>,
    /// Set if other processes have ranks.
    connected: Option<Connected>,
}

/// A run that was submitted to all ranks.
struct TensorRun {
    executor: Arc<TensorExecutor>,
    run: Arc<Run>,
}

impl TensorExecutor {
    /// Divides `graph`, which is [optimised](crate::graph::optimize), into `pipeline` stages, and each stage among the same number of
    /// `devices`. The devices are in the order of the stages.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the model, if it cannot be divided this way. The errors of [`HipExecutor::new`] and of RCCL.
    pub fn new(
        graph: &Graph,
        devices: &[Device],
        pipeline: usize,
        options: &ExecutorOptions,
    ) -> Result<Self> {
        let ranks = devices.len() / pipeline.max(1);
        if ranks == 0 || devices.len() != ranks * pipeline {
            let reason = format!("{} GPUs are not {pipeline} stages of equally many", devices.len());
            return Err(Error::argument("tensor", reason));
        }
        if options.resize.is_some() {
            let reason = "with tensor parallelism images are resized on the host";
            return Err(Error::argument("resize", reason));
        }
        check_divisible(graph)?;
        let parts = stages(graph, pipeline)?;
        let several = pipeline > 1;
        let streams = devices
            .chunks(ranks)
            .map(|devices| Streams::new(devices, options.dtype, options.select, several))
            .collect::<Result<Vec<_>>>()?;
        let gpus = devices.iter().map(|device| device.name().to_owned()).collect();
        let group = Arc::new(Group::new(streams, gpus, Links::Here));
        let plans = Arc::new(Plans::new(graph, options.dtype));
        let mut workers = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            let host = HostThreads::near(&devices[rank], options.threads)?;
            let shares = shard_stages(&parts, rank, ranks)?.into_iter().enumerate();
            let share = |(stage, part): (usize, crate::graph::Stage)| {
                let device = &devices[stage * ranks + rank];
                let executor = HipExecutor::of_share(&part.graph, device, host.clone(), options)?;
                Ok((part, executor))
            };
            let shares = shares.map(share).collect::<Result<_>>()?;
            workers.push(Worker::new(rank, shares, &group, &plans)?);
        }
        drop(parts);
        let host = HostThreads::near(&devices[0], options.threads)?;
        Self::start(devices, group, plans, host, workers)
    }

    /// Creates the executor of these ranks, without their threads.
    fn idle(
        devices: &[Device],
        group: Arc<Group>,
        plans: Arc<Plans>,
        host: HostThreads,
        workers: &[Worker],
    ) -> Self {
        let ranks: Vec<Arc<dyn Executor>> = workers.iter().map(|worker| worker.executor.clone()).collect();
        let stages = 0..group.stages.len();
        let weight_bytes =
            stages.flat_map(|stage| ranks.iter().map(move |rank| rank.info().weight_bytes[stage]));
        let first = ranks.first().map(|rank| rank.info());
        Self {
            info: ExecutorInfo {
                devices: devices.to_vec(),
                graph: plans.graph().clone(),
                activations: plans.dtype(),
                in_flight: group.stages.len() + 1,
                resizes: false,
                weight_bytes: weight_bytes.collect(),
                host,
                // The ranks keep their initial mode, since all ranks must use the same one.
                graphs: GraphSwitch::new(first.map(|info| info.graphs.get()).unwrap_or_default()),
            },
            plans,
            ranks,
            threads: Vec::new(),
            runs: None,
            group,
            connected: None,
        }
    }

    /// Starts the ranks' threads.
    fn start(
        devices: &[Device],
        group: Arc<Group>,
        plans: Arc<Plans>,
        host: HostThreads,
        workers: Vec<Worker>,
    ) -> Result<Self> {
        let mut this = Self::idle(devices, group, plans, host, &workers);
        let mut others = Vec::new();
        let mut workers = workers.into_iter();
        let first = workers.next();
        for mut worker in workers {
            let (sender, actions) = channel();
            others.push(Other::Thread(worker.rank, sender));
            this.spawn(worker.rank, move || worker.follow(&actions))?;
        }
        if let Some(first) = first {
            this.lead(first, others)?;
        }
        Ok(this)
    }

    /// Starts the first rank's thread, which controls the others.
    fn lead(&mut self, mut first: Worker, others: Vec<Other>) -> Result<()> {
        let (sender, runs) = channel();
        self.runs = Some(sender);
        self.spawn(first.rank, move || first.lead(&runs, &others))
    }

    fn spawn(&mut self, rank: usize, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(format!("hipvit-rank-{rank}"));
        let thread = thread
            .spawn(work)
            .map_err(|error| Error::resource("threads", error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Submits a run on `input`, whole images in the plan's order, to all ranks.
    fn submit(&self, batch: usize, input: Vec<u8>, submission: Submission) -> Result<Arc<Run>> {
        // A caller that waits for a run reports a failure first, once its cause had time to arrive.
        if self.group.is_told() {
            self.group.working()?;
        }
        if let Links::Leader(_) = self.group.links() {
            let reason = "only rank 0's process runs images; this one calls Session::follow";
            return Err(Error::argument("session", reason));
        }
        let run = Arc::new(Run::new(batch, Arc::new(input), submission));
        let sent = self
            .runs
            .as_ref()
            .is_some_and(|runs| runs.send(run.clone()).is_ok());
        if !sent {
            self.group.fail(self.group.ended(0));
        }
        Ok(run)
    }

    /// Waits until all ranks have finished a run.
    fn wait(&self, run: &Run) -> Result<Results> {
        if !run.how.sleeps {
            let look = || (run.state.lock().done == self.group.ranks()).then_some(());
            spin(SPIN_BUDGET, look);
        }
        let mut state = run.state.lock();
        // Report the root cause: after a failure, wait briefly for another rank to report it.
        let mut failed: Option<Instant> = None;
        while state.done < self.group.ranks() && failed.is_none_or(|at| at.elapsed() < ERROR_POLL_INTERVAL) {
            let interval = failed.map_or(ERROR_POLL_INTERVAL, |_| RANK_POLL_INTERVAL);
            let waited = run.changed.wait_for(&mut state, interval);
            if waited.timed_out() {
                MutexGuard::unlocked(&mut state, || self.group.check());
            }
            if failed.is_none() && self.group.working().is_err() {
                failed = Some(Instant::now());
            }
        }
        self.group.tell()?;
        match state.refused.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.results)),
        }
    }
}

impl Executor for TensorExecutor {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        self.plans.get(batch)
    }

    /// Each rank copies the input to pinned memory near its GPU.
    fn stage(&self, bytes: usize, _capacity: usize) -> Result<Staging> {
        Ok(Staging::on_host(vec![0; bytes], &self.info.host))
    }

    /// Each rank reserves its memory when it starts the run.
    fn reserve(self: Arc<Self>, plan: &Arc<Plan>, _near: Option<&Staging>) -> Result<Box<dyn Reservation>> {
        Ok(Box::new(TensorReservation {
            executor: self,
            plan: plan.clone(),
        }))
    }

    fn statistics(&self) -> Statistics {
        let first = self.ranks.first().and_then(|rank| rank.statistics().replays);
        let replays = first.map(|replays| Replays {
            all_reduce: Some(self.group.to_string()),
            no_direct: self.group.no_direct(),
            ..replays
        });
        Statistics {
            replays,
            images: Vec::new(),
        }
    }

    fn follow(&self) -> Result<()> {
        self.follow_leader()
    }
}

struct TensorReservation {
    executor: Arc<TensorExecutor>,
    plan: Arc<Plan>,
}

impl Reservation for TensorReservation {
    fn submit(self: Box<Self>, inputs: Inputs<'_>, submission: Submission) -> Result<Box<dyn PendingRun>> {
        let Self { executor, plan } = *self;
        let input = match inputs.only(&plan)? {
            InputData::Host(input) => {
                plan.graph().check_input(input, plan.batch())?;
                match input {
                    Input::Pixels(pixels) => pixels.to_vec(),
                    Input::Values(values) => bytemuck::cast_slice(values).to_vec(),
                    Input::Integers(values) => bytemuck::cast_slice(values).to_vec(),
                }
            }
            InputData::Bytes(bytes) => bytes.to_vec(),
            InputData::Staged(staging) => match staging.give() {
                Given::Host(bytes) => bytes,
                Given::Pinned(memory, _) => memory.to_vec(),
            },
            InputData::Images(_) => {
                let reason = "with tensor parallelism they are resized on the host";
                return Err(Error::argument("images", reason));
            }
            InputData::Device(_) | InputData::Peer(_) => {
                let reason = "is in a GPU's memory; copy it to the host for a tensor-parallel model";
                return Err(Error::argument("input", reason));
            }
        };
        let run = executor.submit(plan.batch(), input, submission)?;
        Ok(Box::new(TensorRun { executor, run }))
    }
}

impl PendingRun for TensorRun {
    fn is_done(&self) -> Result<bool> {
        Ok(self.run.state.lock().done == self.executor.group.ranks())
    }

    fn finish(self: Box<Self>, options: FinishOptions<'_>) -> Result<Finished> {
        let Self { executor, run } = *self;
        let Results { outputs, timing } = executor.wait(&run)?;
        if let Some(total) = options.timing {
            total.merge(&timing);
        }
        // All ranks have dropped their references.
        let input = run.input.lock().take().and_then(Arc::into_inner);
        let staging = input.map(|bytes| Staging::on_host(bytes, &executor.info.host));
        Ok(Finished { outputs, staging })
    }
}

impl Drop for TensorExecutor {
    fn drop(&mut self) {
        self.runs = None;
        self.stop_following();
        for thread in self.threads.drain(..) {
            // A panic was already reported as the rank's failure.
            let _ = thread.join();
        }
        self.stop_followers();
    }
}

impl std::fmt::Debug for TensorExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.info.devices.iter().map(Device::name))
            .finish()
    }
}
