//! Tensor parallelism: a model's [shards](crate::graph::shard()), each on a GPU of its own; or on a GPU for each of the
//! [stages](crate::graph::stages()) of a pipeline, which then is a group of GPUs.
//!
//! Each rank has a thread, which submits the rank's steps and waits for them, since the ranks wait for each other in every
//! all-reduce. It runs the rank's shares of all stages as a [pipeline of its own](PipelineExecutor): what a stage leaves, every rank has,
//! and hands on to the same rank of the next stage, so that each link carries one copy and nobody waits for a broadcast.
//!
//! All threads do the same in the same order, which the first one decides: it takes a run if one more may be in flight, and else waits for
//! the oldest. Of a model that is not a pipeline one run is in flight at a time: latency is what tensor parallelism is for. A rank that
//! fails stops the others, and every run from then on is an error that names it.
//!
//! Ranks may also be [processes], each with one rank, which do the same in the same order as rank 0's process tells them.

mod agreement;
mod group;
mod link;
mod processes;
mod spin;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ndarray::Array2;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rayon::ThreadPool;

use self::agreement::Agreement;
use self::group::{Group, Streams};
use self::link::Links;
use self::processes::Connected;
pub use self::processes::Processes;
use self::spin::spin;
use self::worker::{Other, Worker};
use super::direct::DirectRank;
use super::{HipExecutor, PipelineExecutor, Replays, Stage, Submission};
use crate::error::{Error, Result};
use crate::exec::GraphMode;
use crate::exec::select::SelectOptions;
use crate::graph::plan::Plan;
use crate::graph::{Graph, OutputKind, shard_stages, stages};
use crate::hip::{Comm, Device};
use crate::tensor::DType;

/// How often whoever waits for a run asks the communicators for errors.
const CHECK: Duration = Duration::from_secs(1);

/// How long whoever waits for a run does not sleep: latency matters most for short ones.
const SHORT_RUN: Duration = Duration::from_millis(10);

/// How often whoever waits for a run looks whether the ranks have come to it, after one has failed.
const SOON: Duration = Duration::from_millis(10);

/// Runs the shards of a model on several GPUs.
pub struct TensorExecutor {
    /// By stage, then by rank.
    devices: Vec<Device>,
    /// By rank.
    ranks: Vec<Arc<PipelineExecutor>>,
    threads: Vec<JoinHandle<()>>,
    /// To the first rank, whose order all follow.
    runs: Option<Sender<Arc<Run>>>,
    group: Arc<Group>,
    /// With the processes of other ranks, if there are some.
    connected: Option<Connected>,
}

/// What a rank's executor needs of the others.
pub(in crate::exec) struct Rank {
    /// Which of the model's GPUs it is.
    number: usize,
    /// How many there are.
    count: usize,
    /// Its name in errors.
    gpu: String,
    pub(super) on: RankStream,
    pub(super) agreement: Arc<Agreement>,
}

/// A stream of a rank, with what sums over the ranks there.
#[derive(Clone, Debug)]
pub(super) struct RankStream {
    pub(super) comm: Comm,
    /// What sums small messages.
    pub(super) direct: Option<DirectRank>,
    /// Whether several runs are in flight on it.
    pub(super) several: bool,
}

/// The number of a pipeline's stage, a part of a run there, and what it took.
type Stages = Vec<(usize, StageKind, Duration)>;

/// A [`Stage`] without its step, which is known by its number.
#[derive(Clone, Copy, Debug)]
enum StageKind {
    Upload,
    Step(usize),
    Replay,
    Download,
}

/// A run, which every rank does its part of.
struct Run {
    batch: usize,
    input: Mutex<Option<Arc<Vec<u8>>>>,
    how: Submission,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many ranks are done.
    done: usize,
    /// Why it was not begun.
    refused: Option<Error>,
    results: Results,
}

/// What the first rank tells of a run.
#[derive(Default)]
struct Results {
    outputs: Vec<(OutputKind, Array2<f32>)>,
    /// Each stage's.
    plans: Vec<Arc<Plan>>,
    stages: Stages,
}

/// A run that was given to all ranks.
pub(crate) struct TensorRun(Arc<Run>);

/// What a run leaves: the results, and the memory that it was fed from.
pub(in crate::exec) struct TensorFinished {
    pub(in crate::exec) outputs: Vec<(OutputKind, Array2<f32>)>,
    pub(in crate::exec) memory: Option<Vec<u8>>,
}

impl TensorExecutor {
    /// Divides `graph`, which has been [optimised](crate::graph::optimize), into `pipeline` stages, and each of them among as many of the
    /// `devices`, which are in the order of the stages; `configure` says how each rank's executors run, and `threads` makes the threads that
    /// copy its input.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the model, if it cannot be divided so; as [`HipExecutor::new`]; what RCCL says.
    pub(in crate::exec) fn new(
        graph: &Graph,
        (devices, pipeline): (&[Device], usize),
        dtype: DType,
        configure: (GraphMode, SelectOptions),
        threads: impl Fn(&Device) -> Result<ThreadPool>,
    ) -> Result<Self> {
        let ranks = devices.len() / pipeline.max(1);
        if ranks == 0 || devices.len() != ranks * pipeline {
            let reason = format!("{} GPUs are not {pipeline} stages of equally many", devices.len());
            return Err(Error::argument("tensor", reason));
        }
        let parts = stages(graph, pipeline)?;
        let several = pipeline > 1;
        let streams = devices
            .chunks(ranks)
            .map(|devices| Streams::new(devices, dtype, configure.1, several))
            .collect::<Result<Vec<_>>>()?;
        let gpus = devices.iter().map(|device| device.name().to_owned()).collect();
        let group = Arc::new(Group::new(streams, gpus, Links::Here));
        let mut workers = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            let shares = shard_stages(&parts, rank, ranks)?.into_iter().enumerate();
            let share = |(stage, part): (usize, crate::graph::Stage)| {
                let executor = HipExecutor::of_share(&part.graph, &devices[stage * ranks + rank], dtype)?;
                Ok((part, executor))
            };
            let shares = shares.map(share).collect::<Result<_>>()?;
            workers.push(Worker::new(
                rank,
                shares,
                &group,
                configure,
                threads(&devices[rank])?,
            )?);
        }
        drop(parts);
        Self::start(devices, group, workers)
    }

    /// Without threads yet.
    fn idle(devices: &[Device], group: Arc<Group>, workers: &[Worker]) -> Self {
        Self {
            devices: devices.to_vec(),
            ranks: workers.iter().map(|worker| worker.executor.clone()).collect(),
            threads: Vec::new(),
            runs: None,
            group,
            connected: None,
        }
    }

    /// Starts the ranks' threads.
    fn start(devices: &[Device], group: Arc<Group>, workers: Vec<Worker>) -> Result<Self> {
        let mut this = Self::idle(devices, group, &workers);
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

    /// Starts the first rank's thread, which tells the others what to do.
    fn lead(&mut self, mut first: Worker, others: Vec<Other>) -> Result<()> {
        let (sender, runs) = channel();
        self.runs = Some(sender);
        self.spawn(first.rank, move || first.lead(&runs, &others))
    }

    fn spawn(&mut self, rank: usize, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(format!("hipvit-rank-{rank}"));
        let thread = thread
            .spawn(work)
            .map_err(|error| Error::argument("threads", error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// The GPUs, by stage and then by rank.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    /// The bytes that the weights on each of the [devices](Self::devices) take.
    pub fn weight_bytes(&self) -> Vec<usize> {
        let of_ranks: Vec<Vec<usize>> = self.ranks.iter().map(|rank| rank.weight_bytes()).collect();
        let stages = 0..self.group.stages.len();
        stages
            .flat_map(|stage| of_ranks.iter().map(move |bytes| bytes[stage]))
            .collect()
    }

    /// How many batches are in flight at best, with those that wait for the ranks.
    pub(in crate::exec) fn in_flight(&self) -> usize {
        self.group.stages.len() + 1
    }

    /// How the runs so far were carried out.
    pub(in crate::exec) fn replays(&self) -> Option<Replays> {
        let replays = self.ranks.first()?.replays()?;
        Some(Replays {
            all_reduce: Some(self.group.to_string()),
            no_direct: self.group.no_direct(),
            ..replays
        })
    }

    /// Gives a run on `input`, whole images in the plan's order, to all ranks.
    pub(in crate::exec) fn submit(&self, batch: usize, input: Vec<u8>, how: Submission) -> Result<TensorRun> {
        // Whoever waits for a run is the first to be told of a failure, after its cause had time to come up.
        if self.group.is_told() {
            self.group.working()?;
        }
        if let Links::Leader(_) = self.group.links() {
            let reason = "only rank 0's process runs images; this one calls Session::follow";
            return Err(Error::argument("session", reason));
        }
        let run = Arc::new(Run::new(batch, Arc::new(input), how));
        let sent = self
            .runs
            .as_ref()
            .is_some_and(|runs| runs.send(run.clone()).is_ok());
        if !sent {
            self.group.fail(self.group.ended(0));
        }
        Ok(TensorRun(run))
    }

    /// Waits for a run; `observe` is called with the plan of a stage of the first rank, and with what each part of the run took there.
    #[allow(clippy::type_complexity, reason = "what observes a run")]
    pub(in crate::exec) fn finish(
        &self,
        run: TensorRun,
        observe: Option<&mut dyn FnMut(&Plan, Stage<'_>, Duration)>,
    ) -> Result<TensorFinished> {
        let run = run.0;
        if !run.how.sleeps {
            let look = || (run.state.lock().done == self.group.ranks()).then_some(());
            spin(SHORT_RUN, look);
        }
        let mut state = run.state.lock();
        // Once a rank has failed, others may tell why, or may not come to the run.
        let mut failed: Option<Instant> = None;
        while state.done < self.group.ranks() && failed.is_none_or(|at| at.elapsed() < CHECK) {
            let waited = run.changed.wait_for(&mut state, failed.map_or(CHECK, |_| SOON));
            if waited.timed_out() {
                MutexGuard::unlocked(&mut state, || self.group.check());
            }
            if failed.is_none() && self.group.working().is_err() {
                failed = Some(Instant::now());
            }
        }
        self.group.tell()?;
        if let Some(error) = state.refused.take() {
            return Err(error);
        }
        let Results {
            outputs,
            plans,
            stages,
        } = std::mem::take(&mut state.results);
        drop(state);
        if let Some(observe) = observe {
            for (stage, kind, time) in stages {
                let Some(plan) = plans.get(stage) else { continue };
                let part = match kind {
                    StageKind::Upload => Stage::Upload,
                    StageKind::Step(index) => match plan.steps().get(index) {
                        Some(step) => Stage::Step(step),
                        None => continue,
                    },
                    StageKind::Replay => Stage::Replay,
                    StageKind::Download => Stage::Download,
                };
                observe(plan, part, time);
            }
        }
        // All ranks have given theirs back.
        let memory = run.input.lock().take().and_then(Arc::into_inner);
        Ok(TensorFinished { outputs, memory })
    }
}

impl Drop for TensorExecutor {
    fn drop(&mut self) {
        self.runs = None;
        self.stop_following();
        for thread in self.threads.drain(..) {
            // A panic has been reported as the rank's failure.
            let _ = thread.join();
        }
        self.stop_followers();
    }
}

impl Run {
    fn new(batch: usize, input: Arc<Vec<u8>>, how: Submission) -> Self {
        Self {
            batch,
            input: Mutex::new(Some(input)),
            how,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Keeps what the first rank tells of it.
    fn keep(&self, results: Results) {
        self.state.lock().results = results;
    }

    /// A rank is done with it, or had no memory for it.
    fn done(&self, refused: Option<Error>) {
        let mut state = self.state.lock();
        // That of a GPU without memory says more than the others'.
        if let Some(error) = refused
            && (state.refused.is_none() || matches!(error, Error::Hip(_)))
        {
            state.refused = Some(error);
        }
        state.done += 1;
        self.changed.notify_all();
    }
}

impl Rank {
    /// An error of the rank.
    pub(super) fn error(&self, reason: impl ToString) -> Error {
        Error::Rank {
            rank: self.number,
            ranks: self.count,
            device: self.gpu.clone(),
            reason: reason.to_string(),
        }
    }
}

impl std::fmt::Debug for TensorExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.devices().map(Device::name)).finish()
    }
}
