//! Tensor parallelism: a model's [shards](crate::graph::shard()), each on a GPU of its own.
//!
//! Each rank has a thread, which submits the rank's steps and waits for them, since the ranks wait for each other in every
//! all-reduce. All threads take the same runs in the same order, one at a time: latency is what tensor parallelism is for. Where messages
//! are large, a run is two halves, whose sums [overlap](super::overlap) with computation. A rank that fails stops the others, and every
//! run from then on is an error that names it.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ndarray::Array2;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rayon::ThreadPool;

use super::direct::{DirectGroup, DirectRank};
use super::overlap::{halves, largest_sum};
use super::{Feed, Finished, HipExecutor, Replays, Stage, Submission};
use crate::error::{Error, Result};
use crate::exec::GraphMode;
use crate::exec::select::{AllReduceKind, SelectOptions};
use crate::graph::plan::Plan;
use crate::graph::{Graph, OutputKind, shard};
use crate::hip::{Comm, Device};
use crate::tensor::DType;

/// How often whoever waits for a run asks the communicators for errors.
const CHECK: Duration = Duration::from_secs(1);

/// Runs the shards of a model on several GPUs.
pub struct TensorExecutor {
    ranks: Vec<RankThread>,
    group: Arc<Group>,
    /// Held while a run is given to the ranks, so that all have the runs in one order.
    order: Mutex<()>,
}

/// A rank, as the caller knows it.
struct RankThread {
    executor: Arc<HipExecutor>,
    runs: Option<Sender<Arc<Run>>>,
    thread: Option<JoinHandle<()>>,
}

/// What a rank's executor needs of the others.
pub(in crate::exec) struct Rank {
    pub(super) first: RankStream,
    pub(super) agreement: Arc<Agreement>,
}

/// A stream of a rank, with what sums over the ranks there.
#[derive(Clone, Debug)]
pub(super) struct RankStream {
    pub(super) comm: Comm,
    /// What sums small messages.
    pub(super) direct: Option<DirectRank>,
}

/// A stream of each rank.
struct Streams {
    ranks: Vec<RankStream>,
    /// Why RCCL sums everything.
    no_direct: Option<String>,
}

/// What all ranks share.
struct Group {
    first: Streams,
    /// For the second halves of batches; made when there is one. An error says why there are none.
    second: OnceLock<Result<Streams, String>>,
    agreement: Arc<Agreement>,
    failure: Mutex<Option<Failure>>,
}

#[derive(Clone, Debug)]
struct Failure {
    rank: usize,
    reason: String,
}

/// What is called with the plan of a rank and each stage of a run.
type Stages = Vec<(StageKind, Duration)>;

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
    outputs: Vec<(OutputKind, Array2<f32>)>,
    plan: Option<Arc<Plan>>,
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
    /// Divides `graph`, which has been [optimised](crate::graph::optimize), among the `devices`; `configure` is called with each
    /// rank's executor, and `threads` makes the threads that copy its input.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the model, if it cannot be divided among as many; as [`HipExecutor::new`]; what RCCL says.
    pub(in crate::exec) fn new(
        graph: &Graph,
        devices: &[Device],
        dtype: DType,
        configure: (GraphMode, SelectOptions),
        threads: impl Fn(&Device) -> Result<ThreadPool>,
    ) -> Result<Self> {
        let ranks = devices.len();
        let shards = (0..ranks)
            .map(|rank| shard(graph, rank, ranks))
            .collect::<Result<Vec<_>>>()?;
        let first = Streams::new(devices, dtype, configure.1.all_reduce)?;
        let agreement = Arc::new(Agreement::new(ranks));
        let group = Arc::new(Group {
            first,
            second: OnceLock::new(),
            agreement: agreement.clone(),
            failure: Mutex::default(),
        });
        let mut this = Self {
            ranks: Vec::with_capacity(ranks),
            group: group.clone(),
            order: Mutex::default(),
        };
        for (rank, ((mut graph, device), first)) in shards
            .into_iter()
            .zip(devices)
            .zip(&group.first.ranks)
            .enumerate()
        {
            let mut executor = HipExecutor::of_share(&graph, device, dtype)?;
            executor.set_rank(Rank {
                first: first.clone(),
                agreement: agreement.clone(),
            });
            executor.set_graphs(configure.0);
            executor.set_selection(configure.1);
            graph.release_constants();
            let executor = Arc::new(executor);
            let (sender, receiver) = channel();
            let mut worker = Worker {
                rank,
                executor: executor.clone(),
                graph: Arc::new(graph),
                plans: HashMap::new(),
                threads: threads(device)?,
                group: group.clone(),
            };
            let thread = thread::Builder::new().name(format!("hipvit-rank-{rank}"));
            let thread = thread.spawn(move || worker.work(&receiver));
            this.ranks.push(RankThread {
                executor,
                runs: Some(sender),
                thread: Some(thread.map_err(|error| Error::argument("threads", error))?),
            });
        }
        Ok(this)
    }

    /// The GPUs, by rank.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.ranks.iter().map(|rank| rank.executor.device())
    }

    /// The bytes that the weights of each rank take.
    pub fn weight_bytes(&self) -> Vec<usize> {
        self.ranks
            .iter()
            .map(|rank| rank.executor.weight_bytes())
            .collect()
    }

    /// How the runs so far were carried out.
    pub(in crate::exec) fn replays(&self) -> Option<Replays> {
        self.ranks.first().map(|rank| Replays {
            all_reduce: Some(self.group.to_string()),
            ..rank.executor.replays()
        })
    }

    /// Gives a run on `input`, whole images in the plan's order, to all ranks.
    pub(in crate::exec) fn submit(&self, batch: usize, input: Vec<u8>, how: Submission) -> Result<TensorRun> {
        self.group.working()?;
        let run = Arc::new(Run {
            batch,
            input: Mutex::new(Some(Arc::new(input))),
            how,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let _order = self.order.lock();
        for (index, rank) in self.ranks.iter().enumerate() {
            let sent = rank
                .runs
                .as_ref()
                .is_some_and(|runs| runs.send(run.clone()).is_ok());
            if !sent {
                self.group.fail(index, "its thread has ended");
                return self.group.working().map(|()| TensorRun(run));
            }
        }
        Ok(TensorRun(run))
    }

    /// Waits for a run; `observe` is called with the first rank's plan, and with what each stage of it took.
    #[allow(clippy::type_complexity, reason = "what observes a run")]
    pub(in crate::exec) fn finish(
        &self,
        run: TensorRun,
        observe: Option<&mut dyn FnMut(&Plan, Stage<'_>, Duration)>,
    ) -> Result<TensorFinished> {
        let run = run.0;
        let mut state = run.state.lock();
        while state.done < self.ranks.len() {
            if run.changed.wait_for(&mut state, CHECK).timed_out() {
                MutexGuard::unlocked(&mut state, || self.group.check());
            }
        }
        self.group.working()?;
        let outputs = std::mem::take(&mut state.outputs);
        if let (Some(observe), Some(plan)) = (observe, &state.plan) {
            for &(kind, time) in &state.stages {
                let stage = match kind {
                    StageKind::Upload => Stage::Upload,
                    StageKind::Step(index) => match plan.steps().get(index) {
                        Some(step) => Stage::Step(step),
                        None => continue,
                    },
                    StageKind::Replay => Stage::Replay,
                    StageKind::Download => Stage::Download,
                };
                observe(plan, stage, time);
            }
        }
        drop(state);
        // All ranks have given theirs back.
        let memory = run.input.lock().take().and_then(Arc::into_inner);
        Ok(TensorFinished { outputs, memory })
    }
}

impl Drop for TensorExecutor {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            rank.runs = None;
        }
        for rank in &mut self.ranks {
            // A panic has been reported as the rank's failure.
            let _ = rank.thread.take().map(JoinHandle::join);
        }
    }
}

impl Streams {
    fn new(devices: &[Device], dtype: DType, kind: AllReduceKind) -> Result<Self> {
        let streams = devices
            .iter()
            .map(Device::stream)
            .collect::<crate::hip::Result<Vec<_>>>()?;
        let comms = Comm::all(&streams)?;
        let (direct, no_direct) = match DirectGroup::ranks(&streams, dtype, kind)? {
            Ok(direct) => (direct, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let rank = |(rank, comm)| RankStream {
            comm,
            direct: direct.get(rank).cloned(),
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

/// What sums over the ranks, and why.
impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.first.direct(), &self.first.no_direct) {
            (Some(direct), _) => direct.fmt(f),
            (None, reason) => write!(f, "RCCL ({})", reason.as_deref().unwrap_or_default()),
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
    /// The streams of all ranks so far.
    fn streams(&self) -> impl Iterator<Item = &Streams> {
        let second = self.second.get().and_then(|second| second.as_ref().ok());
        [&self.first].into_iter().chain(second)
    }

    /// Whether all ranks work.
    fn working(&self) -> Result<()> {
        let failure = self.failure.lock().clone();
        match failure {
            None => Ok(()),
            Some(Failure { rank, reason }) => Err(Error::Rank {
                rank,
                ranks: self.first.ranks.len(),
                device: self.first.ranks[rank].comm.stream().device().name().to_owned(),
                reason,
            }),
        }
    }

    /// Notes the first failure, and ends what the other ranks wait for.
    fn fail(&self, rank: usize, reason: impl ToString) {
        {
            let mut failure = self.failure.lock();
            if failure.is_some() {
                return;
            }
            *failure = Some(Failure {
                rank,
                reason: reason.to_string(),
            });
        }
        self.agreement.end();
        for streams in self.streams() {
            if let Some(direct) = streams.direct() {
                direct.abort();
            }
            for rank in &streams.ranks {
                // What matters is that the others stop waiting; what a lost GPU says of that does not.
                let _ = rank.comm.abort();
            }
        }
    }

    /// Asks every rank's communicator for errors.
    fn check(&self) {
        let ranks = self
            .streams()
            .flat_map(|streams| streams.ranks.iter().enumerate());
        for (rank, on) in ranks {
            if self.failure.lock().is_some() {
                return;
            }
            if let Err(error) = on.comm.check() {
                self.fail(rank, error);
            }
        }
    }
}

/// A rank's thread.
struct Worker {
    rank: usize,
    executor: Arc<HipExecutor>,
    graph: Arc<Graph>,
    plans: HashMap<usize, Arc<Plan>>,
    threads: ThreadPool,
    group: Arc<Group>,
}

impl Worker {
    fn work(&mut self, runs: &Receiver<Arc<Run>>) {
        let _ = self.executor.device().bind_thread();
        while let Ok(run) = runs.recv() {
            let finished = match self.group.working() {
                Ok(()) => catch_unwind(AssertUnwindSafe(|| self.run(&run))),
                // It is known why.
                Err(_) => Ok(Ok(None)),
            };
            let result = match finished {
                Ok(Ok(result)) => result,
                Ok(Err(error)) => {
                    self.group.fail(self.rank, error);
                    None
                }
                Err(panic) => {
                    self.group.fail(self.rank, message(&*panic));
                    None
                }
            };
            let mut state = run.state.lock();
            if let (0, Some((outputs, plan, stages))) = (self.rank, result) {
                (state.outputs, state.plan, state.stages) = (outputs, Some(plan), stages);
            }
            state.done += 1;
            run.changed.notify_all();
        }
    }

    #[allow(clippy::type_complexity, reason = "what the first rank reports")]
    fn run(&mut self, run: &Run) -> Result<Option<(Vec<(OutputKind, Array2<f32>)>, Arc<Plan>, Stages)>> {
        let plan = self.plan(run.batch)?;
        let input = run.input.lock().clone();
        let input = input.ok_or_else(|| Error::argument("input", "was given back before the run"))?;
        if let Some(second) = self.second(&plan, run.how) {
            let [a, b] = halves(run.batch);
            let plans = [self.plan(a)?, self.plan(b)?];
            let on = [&self.group.first.ranks[self.rank], &second];
            let outputs = self
                .executor
                .run_halves(plans, on, &input, &self.threads, run.how)?;
            drop(input);
            self.check(&on)?;
            return Ok(Some((outputs, plan, Vec::new())));
        }
        let reserved = self.executor.reserve(plan.clone())?;
        let running = self
            .executor
            .submit(reserved, Feed::Pageable(&input), &self.threads, run.how)?;
        drop(input);
        let mut stages = Vec::new();
        let mut steps = 0;
        let mut observe = |stage: Stage<'_>, time| {
            let kind = match stage {
                Stage::Upload | Stage::Resize => StageKind::Upload,
                Stage::Step(_) => {
                    steps += 1;
                    StageKind::Step(steps - 1)
                }
                Stage::Replay => StageKind::Replay,
                Stage::Download => StageKind::Download,
            };
            stages.push((kind, time));
        };
        let Finished { outputs, memory } = match run.how.timed {
            true => self.executor.finish(running, Some(&mut observe)),
            false => self.executor.finish(running, None),
        }?;
        self.executor.keep(memory);
        self.check(&[&self.group.first.ranks[self.rank]])?;
        Ok(Some((outputs, plan, stages)))
    }

    /// Whether what was summed on these streams is right.
    fn check(&self, streams: &[&RankStream]) -> Result<()> {
        let mut direct = streams.iter().filter_map(|on| on.direct.as_ref());
        direct.try_for_each(DirectRank::check)?;
        // Another rank may have failed meanwhile, and left undefined sums.
        self.group.working()
    }

    /// The stream for the second half of a batch, if the plan's sums are to overlap with computation: on all ranks or on none. Where steps
    /// are timed each runs alone.
    fn second(&self, plan: &Plan, how: Submission) -> Option<RankStream> {
        let options = self.executor.selection().options();
        if how.timed || !options.overlap.applies(plan.batch(), largest_sum(plan)) {
            return None;
        }
        let make = || {
            let ranks = self.group.first.ranks.iter();
            let devices: Vec<Device> = ranks.map(|on| on.comm.stream().device().clone()).collect();
            Streams::new(&devices, self.executor.dtype(), options.all_reduce)
                .map_err(|error| error.to_string())
        };
        // One rank makes those of all, while the others wait.
        let second = self.group.second.get_or_init(make);
        second.as_ref().ok().map(|second| second.ranks[self.rank].clone())
    }

    fn plan(&mut self, batch: usize) -> Result<Arc<Plan>> {
        if let Some(plan) = self.plans.get(&batch) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::new(self.graph.clone(), batch, self.executor.dtype())?);
        self.plans.insert(batch, plan.clone());
        Ok(plan)
    }
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
