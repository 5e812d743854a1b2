//! Tensor parallelism: a model's [shards](crate::graph::shard()), each on a GPU of its own; or on a GPU for each of the
//! [stages](crate::graph::stages()) of a pipeline, which then is a group of GPUs.
//!
//! Each rank has a thread, which submits the rank's steps and waits for them, since the ranks wait for each other in every
//! all-reduce. It runs the rank's shares of all stages as a [pipeline of its own](PipelineExecutor): what a stage leaves, every rank has,
//! and hands on to the same rank of the next stage, so that each link carries one copy and nobody waits for a broadcast.
//!
//! All threads do the same in the same order, which the first one decides: it takes a run if one more may be in flight, and else waits for
//! the oldest. Of a model that is not a pipeline one run is in flight at a time: latency is what tensor parallelism is for. Where messages
//! are large, such a run is two halves, whose sums [overlap](super::overlap) with computation. A rank that fails stops the others, and every
//! run from then on is an error that names it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ndarray::Array2;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rayon::ThreadPool;

use super::direct::{DirectGroup, DirectRank};
use super::overlap::{halves, largest_sum};
use super::pipeline::PipelineRun;
use super::run::is_out_of_memory;
use super::{Feed, Finished, HipExecutor, PipelineExecutor, Replays, Stage, Submission};
use crate::error::{Error, Result};
use crate::exec::GraphMode;
use crate::exec::select::{AllReduceKind, SelectOptions};
use crate::graph::plan::Plan;
use crate::graph::{Graph, OutputKind, shard_stages, stages};
use crate::hip::{self, Comm, Device};
use crate::tensor::DType;

/// How often whoever waits for a run asks the communicators for errors.
const CHECK: Duration = Duration::from_secs(1);

/// How often whoever waits for a run looks whether the ranks have come to it, after one has failed.
const SOON: Duration = Duration::from_millis(10);

/// How often the first rank, while one more run may be in flight, looks whether the oldest has ended.
const LOOK: Duration = Duration::from_micros(50);

/// Runs the shards of a model on several GPUs.
pub struct TensorExecutor {
    /// By stage, then by rank.
    devices: Vec<Device>,
    ranks: Vec<RankThread>,
    /// To the first rank, whose order all follow.
    runs: Option<Sender<Arc<Run>>>,
    group: Arc<Group>,
}

/// A rank, as the caller knows it.
struct RankThread {
    executor: Arc<PipelineExecutor>,
    thread: Option<JoinHandle<()>>,
}

/// What a rank's executor needs of the others.
pub(in crate::exec) struct Rank {
    /// Which of the model's GPUs it is.
    number: usize,
    /// How many there are.
    count: usize,
    pub(super) first: RankStream,
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

/// A stream of each rank of a stage.
struct Streams {
    ranks: Vec<RankStream>,
    /// Why RCCL sums everything.
    no_direct: Option<String>,
}

/// What all ranks share.
struct Group {
    /// By stage.
    first: Vec<Streams>,
    /// For the second halves of batches; made when there is one. An error says why there are none.
    second: OnceLock<Result<Streams, String>>,
    agreement: Arc<Agreement>,
    failure: Mutex<Option<Failure>>,
    /// Whether a caller knows of it, and it is not replaced by its cause any more.
    told: AtomicBool,
}

#[derive(Clone, Debug)]
struct Failure {
    rank: usize,
    ranks: usize,
    device: String,
    reason: String,
    /// Whether RCCL reports it, and the rank may have seen what became of another.
    follows: bool,
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
        let shards = (0..ranks)
            .map(|rank| shard_stages(&parts, rank, ranks))
            .collect::<Result<Vec<_>>>()?;
        drop(parts);
        let several = pipeline > 1;
        let first = devices
            .chunks(ranks)
            .map(|devices| Streams::new(devices, dtype, configure.1.all_reduce, several))
            .collect::<Result<Vec<_>>>()?;
        let agreement = Arc::new(Agreement::new(ranks));
        let group = Arc::new(Group {
            first,
            second: OnceLock::new(),
            agreement: agreement.clone(),
            failure: Mutex::default(),
            told: AtomicBool::new(false),
        });
        let mut workers = Vec::with_capacity(ranks);
        for (rank, shards) in shards.into_iter().enumerate() {
            let share = |(stage, part): (usize, crate::graph::Stage)| {
                let number = stage * ranks + rank;
                let mut executor = HipExecutor::of_share(&part.graph, &devices[number], dtype)?;
                executor.set_rank(Rank {
                    number,
                    count: devices.len(),
                    first: group.first[stage].ranks[rank].clone(),
                    agreement: agreement.clone(),
                });
                executor.set_graphs(configure.0);
                executor.set_selection(configure.1);
                Ok((part, executor))
            };
            let shares = shards.into_iter().enumerate().map(share);
            let executor = PipelineExecutor::of_stages(shares.collect::<Result<_>>()?)?;
            workers.push(Worker {
                rank,
                most: match several {
                    true => executor.in_flight(),
                    false => 1,
                },
                executor: Arc::new(executor),
                threads: threads(&devices[rank])?,
                group: group.clone(),
                in_flight: VecDeque::new(),
                postponed: None,
            });
        }
        let mut this = Self {
            devices: devices.to_vec(),
            ranks: Vec::with_capacity(ranks),
            runs: None,
            group,
        };
        let mut actions = Vec::with_capacity(ranks);
        // The first rank is the last to start, with ways to all others.
        for mut worker in workers.into_iter().rev() {
            let executor = worker.executor.clone();
            let thread = thread::Builder::new().name(format!("hipvit-rank-{}", worker.rank));
            let thread = if worker.rank > 0 {
                let (sender, receiver) = channel();
                actions.push((worker.rank, sender));
                thread.spawn(move || worker.follow(&receiver))
            } else {
                let (sender, receiver) = channel();
                this.runs = Some(sender);
                let others = std::mem::take(&mut actions);
                thread.spawn(move || worker.lead(&receiver, &others))
            };
            this.ranks.push(RankThread {
                executor,
                thread: Some(thread.map_err(|error| Error::argument("threads", error))?),
            });
        }
        this.ranks.reverse();
        Ok(this)
    }

    /// The GPUs, by stage and then by rank.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    /// The bytes that the weights on each of the [devices](Self::devices) take.
    pub fn weight_bytes(&self) -> Vec<usize> {
        let of_ranks: Vec<Vec<usize>> = self
            .ranks
            .iter()
            .map(|rank| rank.executor.weight_bytes())
            .collect();
        let stages = 0..self.group.first.len();
        stages
            .flat_map(|stage| of_ranks.iter().map(move |bytes| bytes[stage]))
            .collect()
    }

    /// How many batches are in flight at best, with those that wait for the ranks.
    pub(in crate::exec) fn in_flight(&self) -> usize {
        self.group.first.len() + 1
    }

    /// How the runs so far were carried out.
    pub(in crate::exec) fn replays(&self) -> Option<Replays> {
        let replays = self.ranks.first()?.executor.replays()?;
        Some(Replays {
            all_reduce: Some(self.group.to_string()),
            ..replays
        })
    }

    /// Gives a run on `input`, whole images in the plan's order, to all ranks.
    pub(in crate::exec) fn submit(&self, batch: usize, input: Vec<u8>, how: Submission) -> Result<TensorRun> {
        // Whoever waits for a run is the first to be told of a failure, after its cause had time to come up.
        if self.group.told.load(Ordering::Relaxed) {
            self.group.working()?;
        }
        let run = Arc::new(Run {
            batch,
            input: Mutex::new(Some(Arc::new(input))),
            how,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
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
        let mut state = run.state.lock();
        // Once a rank has failed, others may tell why, or may not come to the run.
        let mut failed: Option<Instant> = None;
        while state.done < self.ranks.len() && failed.is_none_or(|at| at.elapsed() < CHECK) {
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
        for rank in &mut self.ranks {
            // A panic has been reported as the rank's failure.
            let _ = rank.thread.take().map(JoinHandle::join);
        }
    }
}

impl Rank {
    /// An error of the rank, on its GPU.
    pub(super) fn error(&self, device: &Device, reason: impl ToString) -> Error {
        Error::Rank {
            rank: self.number,
            ranks: self.count,
            device: device.name().to_owned(),
            reason: reason.to_string(),
        }
    }
}

impl Streams {
    fn new(devices: &[Device], dtype: DType, kind: AllReduceKind, several: bool) -> Result<Self> {
        let streams = devices
            .iter()
            .map(Device::stream)
            .collect::<hip::Result<Vec<_>>>()?;
        let comms = Comm::all(&streams)?;
        let (direct, no_direct) = match DirectGroup::ranks(&streams, dtype, kind)? {
            Ok(direct) => (direct, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let rank = |(rank, comm)| RankStream {
            comm,
            direct: direct.get(rank).cloned(),
            several,
        };
        Ok(Self {
            ranks: comms.into_iter().enumerate().map(rank).collect(),
            no_direct,
        })
    }

    fn direct(&self) -> Option<&DirectGroup> {
        let first = self.ranks.first()?;
        Some(first.direct.as_ref()?.group())
    }
}

/// What sums over the ranks of a stage, and why.
impl std::fmt::Display for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.direct(), &self.no_direct) {
            (Some(direct), _) => direct.fmt(f),
            (None, reason) => write!(f, "RCCL ({})", reason.as_deref().unwrap_or_default()),
        }
    }
}

/// What sums over the ranks, and why: once if it is the same in all stages.
impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stages: Vec<String> = self.first.iter().map(Streams::to_string).collect();
        match stages.as_slice() {
            [first, others @ ..] if others.iter().all(|other| other == first) => f.write_str(first),
            stages => {
                let each = stages.iter().enumerate();
                let each: Vec<String> = each
                    .map(|(stage, sums)| format!("stage {stage}: {sums}"))
                    .collect();
                f.write_str(&each.join("; "))
            }
        }?;
        match self.second.get() {
            None => Ok(()),
            Some(Ok(_)) => {
                f.write_str("; overlapped with computation where messages are large or as requested")
            }
            Some(Err(reason)) => write!(f, "; not overlapped with computation: {reason}"),
        }
    }
}

impl Group {
    /// The streams of all ranks so far, with the stage that they are of.
    fn streams(&self) -> impl Iterator<Item = (usize, &Streams)> {
        let second = self.second.get().and_then(|second| second.as_ref().ok());
        let second = second.map(|second| (0, second));
        self.first.iter().enumerate().chain(second)
    }

    /// Whether all ranks work.
    fn working(&self) -> Result<()> {
        match self.failure.lock().clone() {
            None => Ok(()),
            Some(Failure {
                rank,
                ranks,
                device,
                reason,
                follows: _,
            }) => Err(Error::Rank {
                rank,
                ranks,
                device,
                reason,
            }),
        }
    }

    /// The same, for a caller, who is told no other failure later.
    fn tell(&self) -> Result<()> {
        {
            let failure = self.failure.lock();
            if failure.is_some() {
                self.told.store(true, Ordering::Relaxed);
            }
        }
        self.working()
    }

    /// The failure of a rank on its GPU of a stage.
    fn failure(&self, stage: usize, rank: usize, reason: impl ToString) -> Failure {
        let ranks = &self.first[stage].ranks;
        Failure {
            rank: stage * ranks.len() + rank,
            ranks: self.first.len() * ranks.len(),
            device: ranks[rank].comm.stream().device().name().to_owned(),
            reason: reason.to_string(),
            follows: false,
        }
    }

    /// The same, for what HIP or RCCL says.
    fn failure_on(&self, stage: usize, rank: usize, error: &hip::Error) -> Failure {
        Failure {
            follows: matches!(error, hip::Error::Communicator { .. }),
            ..self.failure(stage, rank, error)
        }
    }

    /// The failure of a rank's thread, of which `error` may name the GPU.
    fn failure_of(&self, rank: usize, error: Error) -> Failure {
        match error {
            Error::Rank {
                rank,
                ranks,
                device,
                reason,
            } => Failure {
                rank,
                ranks,
                device,
                reason,
                follows: false,
            },
            Error::Hip(error @ hip::Error::Communicator { .. }) => {
                // The GPU's name tells the stage.
                let of = |streams: &Streams| {
                    let name = streams.ranks[rank].comm.stream().device().name();
                    matches!(&error, hip::Error::Communicator { device, .. } if device == name)
                };
                let stage = self.first.iter().position(of).unwrap_or(0);
                self.failure_on(stage, rank, &error)
            }
            error => self.failure(0, rank, error),
        }
    }

    /// That a rank's thread is no more.
    fn ended(&self, rank: usize) -> Failure {
        self.failure(0, rank, "its thread has ended")
    }

    /// Notes the first failure, and ends what the other ranks wait for.
    fn fail(&self, failure: Failure) {
        {
            let mut first = self.failure.lock();
            if let Some(first) = &mut *first {
                // The cause of what was seen first.
                let told = self.told.load(Ordering::Relaxed);
                // A rank that finds the group failed repeats it.
                let repeated = (first.rank, &first.reason) == (failure.rank, &failure.reason);
                if first.follows && !failure.follows && !repeated && !told {
                    *first = failure;
                }
                return;
            }
            *first = Some(failure);
        }
        self.agreement.end();
        for (_, streams) in self.streams() {
            if let Some(direct) = streams.direct() {
                direct.abort();
            }
            for rank in &streams.ranks {
                // What matters is that the others stop waiting; what a lost GPU says of that does not.
                let _ = rank.comm.abort();
            }
        }
    }

    /// Asks every rank's communicators for errors.
    fn check(&self) {
        for (stage, streams) in self.streams() {
            for (rank, on) in streams.ranks.iter().enumerate() {
                if self.failure.lock().is_some() {
                    return;
                }
                if let Err(error) = on.comm.check() {
                    self.fail(self.failure_on(stage, rank, &error));
                }
            }
        }
    }
}

/// What all ranks do next.
#[derive(Clone)]
enum Action {
    /// They submit a run.
    Submit(Arc<Run>),
    /// They wait for the oldest of those that are in flight.
    Finish,
}

/// A run of a rank's.
enum Part {
    Submitted(PipelineRun),
    /// Run as two halves, and waited for.
    Done(Results),
    /// Without the memory for it, for this reason.
    Refused(Error),
}

/// A rank's thread.
struct Worker {
    rank: usize,
    executor: Arc<PipelineExecutor>,
    threads: ThreadPool,
    group: Arc<Group>,
    /// What it has submitted and not waited for; of a run that failed, nothing.
    in_flight: VecDeque<(Arc<Run>, Option<Part>)>,
    /// How many runs are in flight at most.
    most: usize,
    /// A run for which there was no memory beside those in flight.
    postponed: Option<Arc<Run>>,
}

impl Worker {
    /// Decides what all ranks do.
    fn lead(&mut self, runs: &Receiver<Arc<Run>>, others: &[(usize, Sender<Action>)]) {
        self.bind();
        while let Some(action) = self.next(runs) {
            for (rank, other) in others {
                if other.send(action.clone()).is_err() {
                    self.group.fail(self.group.ended(*rank));
                }
            }
            self.act(action);
        }
    }

    /// Does what the first rank decides.
    fn follow(&mut self, actions: &Receiver<Action>) {
        self.bind();
        while let Ok(action) = actions.recv() {
            self.act(action);
            // The first rank gives it again.
            self.postponed = None;
        }
    }

    /// That the thread cannot be bound near its first GPU costs speed at most.
    fn bind(&self) {
        if let Ok(first) = self.executor.first() {
            let _ = first.device().bind_thread();
        }
    }

    /// What comes next; `None` once nothing is in flight and no more runs will come.
    fn next(&mut self, runs: &Receiver<Arc<Run>>) -> Option<Action> {
        let Some((_, oldest)) = self.in_flight.front() else {
            let run = self.postponed.take().or_else(|| runs.recv().ok());
            return run.map(Action::Submit);
        };
        while self.in_flight.len() < self.most {
            if let Some(run) = self.postponed.take() {
                return Some(Action::Submit(run));
            }
            match runs.recv_timeout(LOOK) {
                Ok(run) => return Some(Action::Submit(run)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if has_ended(oldest.as_ref()) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Some(Action::Finish)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Submit(run) => {
                let part = self.guarded(|this| this.submit(&run));
                match part {
                    Some(Part::Refused(_)) if !self.in_flight.is_empty() => {
                        // There may be memory for it when another is done, and no more than for these.
                        self.most = self.in_flight.len();
                        self.postponed = Some(run);
                    }
                    part => self.in_flight.push_back((run, part)),
                }
            }
            Action::Finish => {
                let Some((run, part)) = self.in_flight.pop_front() else {
                    return;
                };
                let results = match (part, self.group.working()) {
                    (Some(part), Ok(())) => self.guarded(|this| this.finish(&run, part)),
                    (Some(Part::Submitted(_)), Err(_)) => {
                        self.look_for_cause();
                        None
                    }
                    _ => None,
                };
                let mut state = run.state.lock();
                match results {
                    Some(Ok(results)) if self.rank == 0 => state.results = results,
                    // That of a GPU without memory says more than the others'.
                    Some(Err(error)) if state.refused.is_none() || matches!(error, Error::Hip(_)) => {
                        state.refused = Some(error);
                    }
                    _ => {}
                }
                state.done += 1;
                run.changed.notify_all();
            }
        }
    }

    /// After a failure that may be another's, whether one of the rank's GPUs is the cause.
    fn look_for_cause(&self) {
        for (stage, streams) in self.group.first.iter().enumerate() {
            if let Err(error) = streams.ranks[self.rank].comm.stream().synchronize() {
                self.group.fail(self.group.failure_on(stage, self.rank, &error));
            }
        }
    }

    /// Does this, if all ranks work. Its failure is the rank's.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Option<T> {
        self.group.working().ok()?;
        let failure = match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => self.group.failure_of(self.rank, error),
            Err(panic) => self.group.failure(0, self.rank, message(&*panic)),
        };
        let follows = failure.follows;
        self.group.fail(failure);
        if follows {
            self.look_for_cause();
        }
        None
    }

    fn submit(&mut self, run: &Run) -> Result<Part> {
        let input = run.input.lock().clone();
        let input = input.ok_or_else(|| Error::argument("input", "was given back before the run"))?;
        if let Some((second, plan)) = self.second(run)? {
            let executor = self.executor.first()?;
            let [a, b] = halves(run.batch);
            let plans = [self.executor.plan(a)?, self.executor.plan(b)?];
            let on = [&self.group.first[0].ranks[self.rank], &second];
            let halves = match executor.reserve_halves(plans, on) {
                Ok(halves) => halves,
                Err(error) if is_out_of_memory(&error) => return Ok(Part::Refused(error)),
                Err(error) => return Err(error),
            };
            let outputs = executor.run_halves(halves, &input, &self.threads, run.how)?;
            self.check([(0, on[0]), (0, on[1])])?;
            return Ok(Part::Done(Results {
                outputs,
                plans: vec![plan],
                stages: Vec::new(),
            }));
        }
        let reserved = match self.executor.reserve(run.batch) {
            Ok(reserved) => reserved,
            Err(error) if is_out_of_memory(&error) => return Ok(Part::Refused(error)),
            Err(error) => return Err(error),
        };
        let running = self
            .executor
            .submit(reserved, Feed::Pageable(&input), &self.threads, run.how)?;
        Ok(Part::Submitted(running))
    }

    /// Waits for a run. An error within is the run's, and not the rank's.
    fn finish(&mut self, run: &Run, part: Part) -> Result<Result<Results>> {
        let running = match part {
            Part::Submitted(running) => running,
            Part::Done(results) => return Ok(Ok(results)),
            Part::Refused(error) => return Ok(Err(error)),
        };
        let plans: Vec<Arc<Plan>> = running.plans().cloned().collect();
        let mut stages = Vec::new();
        let mut steps = vec![0; plans.len()];
        let mut observe = |stage: usize, part: Stage<'_>, time| {
            let kind = match part {
                Stage::Upload | Stage::Resize => StageKind::Upload,
                Stage::Step(_) => {
                    steps[stage] += 1;
                    StageKind::Step(steps[stage] - 1)
                }
                Stage::Replay => StageKind::Replay,
                Stage::Download => StageKind::Download,
            };
            stages.push((stage, kind, time));
        };
        let Finished { outputs, memory } = match run.how.timed {
            true => self.executor.finish(running, Some(&mut observe)),
            false => self.executor.finish(running, None),
        }?;
        self.executor.first()?.keep(memory);
        let first = self.group.first.iter().enumerate();
        self.check(first.map(|(stage, streams)| (stage, &streams.ranks[self.rank])))?;
        Ok(Ok(Results {
            outputs,
            plans,
            stages,
        }))
    }

    /// Whether what was summed on these streams, of these stages, is right.
    fn check<'a>(&self, streams: impl IntoIterator<Item = (usize, &'a RankStream)>) -> Result<()> {
        for (stage, on) in streams {
            if let Some(Err(error)) = on.direct.as_ref().map(DirectRank::check) {
                self.group.fail(self.group.failure(stage, self.rank, error));
            }
        }
        // Another rank may have failed meanwhile, and left undefined sums.
        self.group.working()
    }

    /// The stream for the second half of a batch, if the sums of its plan are to overlap with computation: on all ranks or on none. Where
    /// steps are timed each runs alone, and so they do in a pipeline, whose GPUs have other batches in flight.
    fn second(&self, run: &Run) -> Result<Option<(RankStream, Arc<Plan>)>> {
        if run.how.timed || self.group.first.len() > 1 {
            return Ok(None);
        }
        let executor = self.executor.first()?;
        let options = executor.selection().options();
        let plan = self.executor.plan(run.batch)?;
        if !options.overlap.applies(plan.batch(), largest_sum(&plan)) {
            return Ok(None);
        }
        let make = || {
            let ranks = self.group.first[0].ranks.iter();
            let devices: Vec<Device> = ranks.map(|on| on.comm.stream().device().clone()).collect();
            Streams::new(&devices, executor.dtype(), options.all_reduce, false)
                .map_err(|error| error.to_string())
        };
        // One rank makes those of all, while the others wait.
        let second = self.group.second.get_or_init(make);
        let second = second.as_ref().ok();
        Ok(second.map(|second| (second.ranks[self.rank].clone(), plan)))
    }
}

/// Whether there is nothing more to wait for.
fn has_ended(part: Option<&Part>) -> bool {
    let Some(Part::Submitted(running)) = part else {
        return true;
    };
    // Waiting for it says what has failed.
    running.end().is_none_or(|end| end.is_done().unwrap_or(true))
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "its thread panicked: {}",
        text.unwrap_or_else(|| "without a message".into())
    )
}

/// Ranks that do the same only if all can.
#[derive(Debug)]
pub(in crate::exec) struct Agreement {
    ranks: usize,
    votes: Mutex<Votes>,
    changed: Condvar,
}

#[derive(Debug)]
struct Votes {
    /// How many have said something in this round.
    count: usize,
    /// Whether all of them said yes.
    all: bool,
    round: u64,
    /// What the last round came to.
    last: bool,
    /// A rank has failed: nobody waits any more.
    ended: bool,
}

impl Agreement {
    fn new(ranks: usize) -> Self {
        Self {
            ranks,
            votes: Mutex::new(Votes {
                count: 0,
                all: true,
                round: 0,
                last: true,
                ended: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits until all ranks have called it as often: whether all gave `true`. `false` once a rank has failed.
    pub(super) fn agree(&self, mine: bool) -> bool {
        let mut votes = self.votes.lock();
        if votes.ended {
            return false;
        }
        votes.count += 1;
        votes.all &= mine;
        if votes.count == self.ranks {
            votes.last = votes.all;
            (votes.count, votes.all) = (0, true);
            votes.round += 1;
            self.changed.notify_all();
            return votes.last;
        }
        let round = votes.round;
        while votes.round == round && !votes.ended {
            self.changed.wait(&mut votes);
        }
        votes.round != round && votes.last
    }

    fn end(&self) {
        self.votes.lock().ended = true;
        self.changed.notify_all();
    }
}

impl std::fmt::Debug for TensorExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.devices().map(Device::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_only_if_all_do() {
        let agreement = Agreement::new(3);
        let votes = [
            [true, true, true],
            [true, false, true],
            [false, false, false],
            [true, true, true],
        ];
        let results: Vec<Vec<bool>> = thread::scope(|scope| {
            let rank = |rank: usize| {
                let agreement = &agreement;
                scope.spawn(move || votes.iter().map(|round| agreement.agree(round[rank])).collect())
            };
            let threads: Vec<_> = (0..3).map(rank).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for result in results {
            assert_eq!(result, [true, false, false, true]);
        }
    }

    #[test]
    fn a_failed_rank_is_not_waited_for() {
        let agreement = Agreement::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| agreement.agree(true));
            agreement.end();
            assert!(!waiting.join().unwrap());
        });
        assert!(!agreement.agree(true));
    }
}
