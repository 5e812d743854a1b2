//! The thread of a rank.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::action::Action;
use super::followers::Follower;
use super::group::Group;
use super::link::{Links, Message, NoMemory};
use super::run::{Results, Run};
use super::spin::receive;
use crate::error::{Error, Result};
use crate::exec::executor::{Executor, FinishOptions, Finished, PendingRun};
use crate::exec::hip::direct::DirectRank;
use crate::exec::hip::executor::HipExecutor;
use crate::exec::hip::pipeline::PipelineExecutor;
use crate::exec::hip::reserve::is_out_of_memory;
use crate::exec::input::{InputData, Inputs};
use crate::exec::plans::Plans;
use crate::graph;
use crate::timing::Timing;

/// Interval between polls of the oldest run by the first rank, while one more run may be in flight.
const RUN_POLL_INTERVAL: Duration = Duration::from_micros(50);

/// A rank's part of a run.
enum Part {
    Submitted(Box<dyn PendingRun>),
    /// The rank has no memory for the run.
    Refused(Error),
}

/// The thread of a rank.
pub(super) struct Worker {
    pub(super) rank: usize,
    pub(super) executor: Arc<dyn Executor>,
    group: Arc<Group>,
    /// Submitted runs. `None` for a run that failed.
    in_flight: VecDeque<(Arc<Run>, Option<Part>)>,
    /// Maximum number of runs in flight.
    most: usize,
    /// A run that had no memory while other runs were in flight.
    postponed: Option<Arc<Run>>,
}

/// The first rank's channel to another rank.
pub(super) enum Other {
    /// Channel to the rank's thread.
    Thread(usize, Sender<Action>),
    /// Connection to the rank's process.
    Process(Arc<Follower>),
}

impl Worker {
    /// Creates the worker of a rank from its shards of all stages. `plans` are those of the whole model.
    pub(super) fn new(
        rank: usize,
        mut shares: Vec<(graph::Stage, HipExecutor)>,
        group: &Arc<Group>,
        plans: &Arc<Plans>,
    ) -> Result<Self> {
        for (stage, (_, executor)) in shares.iter_mut().enumerate() {
            executor.set_rank(group.rank(stage, rank));
        }
        // In a pipeline, each rank passes its activations to the same rank of the next stage.
        let executor: Arc<dyn Executor> = match (shares.len(), shares.pop()) {
            (1, Some((_, only))) => Arc::new(only),
            (_, last) => {
                shares.extend(last);
                Arc::new(PipelineExecutor::of_stages(plans.clone(), shares)?)
            }
        };
        Ok(Self {
            rank,
            most: match group.stages.len() {
                1 => 1,
                _ => executor.info().in_flight,
            },
            executor,
            group: group.clone(),
            in_flight: VecDeque::new(),
            postponed: None,
        })
    }

    /// Decides the actions of all ranks.
    pub(super) fn lead(&mut self, runs: &Receiver<Arc<Run>>, others: &[Other]) {
        self.bind();
        while let Some(action) = self.next(runs) {
            for other in others {
                match other {
                    Other::Thread(rank, actions) => {
                        if actions.send(action.clone()).is_err() {
                            self.group.fail(self.group.ended(*rank));
                        }
                    }
                    Other::Process(follower) => {
                        follower.tell(&action, self.in_flight.front().map(|(run, _)| run));
                    }
                }
            }
            self.act(action);
        }
    }

    /// Takes the actions that the first rank decides.
    pub(super) fn follow(&mut self, actions: &Receiver<Action>) {
        self.bind();
        while let Some(action) = receive(actions) {
            self.act(action);
            // The first rank sends it again.
            self.postponed = None;
        }
    }

    /// Binds the thread near its first GPU. A failed binding only costs speed.
    fn bind(&self) {
        if let Some(first) = self.executor.info().devices.first() {
            let _ = first.bind_thread();
        }
    }

    /// Returns the next action. `None` once nothing is in flight and no more runs will come.
    fn next(&mut self, runs: &Receiver<Arc<Run>>) -> Option<Action> {
        let Some((_, oldest)) = self.in_flight.front() else {
            let run = self.postponed.take().or_else(|| receive(runs));
            return run.map(Action::Submit);
        };
        while self.in_flight.len() < self.most {
            if let Some(run) = self.postponed.take() {
                return Some(Action::Submit(run));
            }
            match runs.recv_timeout(RUN_POLL_INTERVAL) {
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
                        // Another run may fit once one in flight has finished. Never have more in flight than now.
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
                let refused = match results {
                    Some(Ok(results)) => {
                        if self.rank == 0 {
                            run.keep(results);
                        }
                        None
                    }
                    Some(Err(error)) => Some(error),
                    None => None,
                };
                match (self.group.links(), refused) {
                    (Links::Leader(leader), None) => leader.send(&Message::Done),
                    (Links::Leader(leader), Some(error)) => {
                        leader.send(&Message::Refused(NoMemory::of(&error)));
                    }
                    (_, refused) => run.done(refused),
                }
            }
        }
    }

    /// After a failure that another rank may have caused, looks for the cause on this rank's GPUs.
    fn look_for_cause(&self) {
        for (stage, streams) in self.group.stages.iter().enumerate() {
            if let Err(error) = streams.of(self.rank).comm.stream().synchronize() {
                self.group.fail(self.group.failure_on(stage, self.rank, &error));
            }
        }
    }

    /// Runs `work`, unless a rank has failed. An error or a panic is a failure of this rank.
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
        let input = input.ok_or_else(|| Error::internal("input", "was given back before the run"))?;
        let plan = self.executor.plan(run.batch)?;
        let reservation = match self.executor.clone().reserve(&plan, None) {
            Ok(reservation) => reservation,
            Err(error) if is_out_of_memory(&error) => return Ok(Part::Refused(error)),
            Err(error) => return Err(error),
        };
        let inputs = Inputs::of_plan(&plan, InputData::Bytes(&input));
        Ok(Part::Submitted(reservation.submit(inputs, run.how)?))
    }

    /// Waits for a run. The inner error belongs to the run, the outer one to the rank.
    fn finish(&mut self, run: &Run, part: Part) -> Result<Result<Results>> {
        let submitted = match part {
            Part::Submitted(submitted) => submitted,
            Part::Refused(error) => return Ok(Err(error)),
        };
        let mut timing = Timing::default();
        let options = FinishOptions {
            timing: run.how.timed.then_some(&mut timing),
            keep: None,
        };
        let Finished { outputs, .. } = submitted.finish(options)?;
        self.check()?;
        Ok(Ok(Results { outputs, timing }))
    }

    /// Fails if an all-reduce went wrong on one of the rank's GPUs, or if another rank has failed.
    fn check(&self) -> Result<()> {
        for (stage, streams) in self.group.stages.iter().enumerate() {
            let direct = streams.of(self.rank).direct.as_ref();
            if let Some(Err(error)) = direct.map(DirectRank::check) {
                self.group.fail(self.group.failure(stage, self.rank, error));
            }
        }
        // Another rank may have failed in the meantime and left undefined sums.
        self.group.working()
    }
}

/// Returns true if waiting for the run would not block.
fn has_ended(part: Option<&Part>) -> bool {
    let Some(Part::Submitted(running)) = part else {
        return true;
    };
    // `finish` reports the failure.
    running.is_done().unwrap_or(true)
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "its thread panicked: {}",
        text.unwrap_or_else(|| "without a message".into())
    )
}
