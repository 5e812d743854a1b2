//! Ranks in several processes with one GPU each. Rank 0's process controls the others, which follow it.
//!
//! Each process creates its own rank of the communicators, from ids that rank 0 provides. Then rank 0 sends every run with its input, and
//! when to wait for it. It also counts votes and forwards failures of ranks. A lost connection is a failure of the process at its other
//! end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::group::{Group, Streams};
use super::link::{Heartbeat, Incoming, Input, Link, Links, Message};
use super::run::Run;
use super::worker::{Action, Other, Worker};
use super::{ERROR_POLL_INTERVAL, RANK_POLL_INTERVAL, TensorExecutor};
use crate::error::{Error, Result};
use crate::exec::hip::executor::HipExecutor;
use crate::exec::options::ExecutorOptions;
use crate::exec::plans::Plans;
use crate::exec::select::AllReduceKind;
use crate::exec::threads::HostThreads;
use crate::graph::{Graph, shard_stages, stages};
use crate::hip::{Device, Rendezvous, UniqueId};

/// Processes that have met to run one model, each with a GPU.
#[derive(Debug)]
pub struct Processes {
    rendezvous: Rendezvous,
    /// Name of each rank's GPU and host.
    gpus: Vec<String>,
}

/// Message of a rank to the others: bytes, or the reason why it has none. Includes the rank's name.
#[derive(Serialize, Deserialize)]
struct Given {
    name: String,
    bytes: Result<Vec<u8>, String>,
}

impl Processes {
    /// Exchanges a message between the processes that have met. Returns the messages by rank.
    ///
    /// `gpu` is the name of this process's GPU. `own` is its message, or the reason why it cannot continue.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] for the first rank that cannot continue. [`Error::Hip`] if a process has ended.
    pub(crate) fn meet(
        mut rendezvous: Rendezvous,
        gpu: String,
        own: Result<Vec<u8>, String>,
    ) -> Result<(Self, Vec<Vec<u8>>)> {
        let given = exchange(&mut rendezvous, gpu, own)?;
        let (gpus, told) = given.into_iter().unzip();
        Ok((Self { rendezvous, gpus }, told))
    }

    /// Returns the rank of this process.
    pub(crate) fn rank(&self) -> usize {
        self.rendezvous.world().rank()
    }

    /// Returns the messages of all ranks. Waits for all of them, which must call it equally often.
    fn exchange(&mut self, own: Result<Vec<u8>, String>) -> Result<Vec<Vec<u8>>> {
        let gpu = self.gpus[self.rank()].clone();
        let given = exchange(&mut self.rendezvous, gpu, own)?;
        Ok(given.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Distributes rank 0's id for a communicator to all ranks.
    fn unique_id(&mut self, device: &Device) -> Result<UniqueId> {
        let own = match self.rank() {
            0 => UniqueId::new(device).map(|id| id.to_bytes().to_vec()),
            _ => Ok(Vec::new()),
        };
        let given = self.exchange(own.map_err(|error| error.to_string()))?;
        let id = given.first().and_then(|bytes| bytes.as_slice().try_into().ok());
        let id = id.ok_or_else(|| Error::internal("communicator", "rank 0 has given no id for it"))?;
        Ok(UniqueId::from_bytes(id))
    }
}

/// Exchanges messages, each with the name of its rank.
fn exchange(
    rendezvous: &mut Rendezvous,
    name: String,
    bytes: Result<Vec<u8>, String>,
) -> Result<Vec<(String, Vec<u8>)>> {
    let ranks = rendezvous.world().size();
    let encoded = serde_json::to_vec(&Given { name, bytes });
    let gathered = rendezvous.gather(&encoded.map_err(|error| Error::internal("processes", error))?)?;
    let given = |(rank, bytes): (usize, Vec<u8>)| {
        let other_version = |error| {
            let reason = format!("rank {rank} has another version of hipvit: {error}");
            Error::argument("processes", reason)
        };
        let Given { name, bytes } = serde_json::from_slice(&bytes).map_err(other_version)?;
        match bytes {
            Ok(bytes) => Ok((name, bytes)),
            Err(reason) => Err(Error::Rank {
                rank,
                ranks,
                device: name,
                reason,
            }),
        }
    };
    gathered.into_iter().enumerate().map(given).collect()
}

/// State that an executor has of the other processes.
#[derive(Debug)]
pub(super) struct Connected {
    readers: Vec<JoinHandle<()>>,
    _heartbeat: Heartbeat,
    /// Signals that there is nothing more to follow.
    over: Option<Mutex<Receiver<()>>>,
}

/// Rank 0's view of a rank in another process.
pub(super) struct Follower {
    rank: usize,
    gpu: String,
    link: Arc<Link>,
    /// Runs that the rank was told to wait for and has not reported yet.
    awaited: Mutex<VecDeque<Arc<Run>>>,
}

impl Follower {
    /// Sends an action to the rank. [`Action::Finish`] refers to `oldest`.
    pub(super) fn tell(&self, action: &Action, oldest: Option<&Arc<Run>>) {
        let message = match action {
            Action::Submit(run) => Message::Submit {
                batch: run.batch,
                how: run.how,
                // Without an input the run fails here and is not started there.
                input: Input(run.input.lock().clone().unwrap_or_default()),
            },
            Action::Finish => {
                self.awaited.lock().extend(oldest.cloned());
                Message::Finish
            }
        };
        self.link.send(&message);
    }

    /// Handles the report that the oldest run finished or was refused.
    fn done(&self, refused: Option<Error>) {
        if let Some(run) = self.awaited.lock().pop_front() {
            run.done(refused);
        }
    }

    /// Handles the rank's messages until its connection ends.
    fn listen(&self, group: &Group, mut incoming: Incoming) {
        let lost = loop {
            match incoming.next() {
                Ok(Message::Vote(mine)) => group.agreement.vote(mine),
                Ok(Message::Done) => self.done(None),
                Ok(Message::Refused(none)) => self.done(Some(none.on(&self.gpu))),
                Ok(Message::Failed(failure)) => group.fail(failure),
                Ok(Message::Alive) => {}
                Ok(message) => break format!("its process has sent {message:?}"),
                Err(reason) => break reason,
            }
        };
        // Stops the threads that still send to the rank.
        self.link.close();
        group.lost(self.rank, lost);
    }
}

/// Handles rank 0's messages until there is nothing more to follow.
fn listen_to_leader(group: &Group, actions: &Sender<Action>, mut incoming: Incoming) {
    let lost = loop {
        let action = match incoming.next() {
            Ok(Message::Submit { batch, how, input }) => {
                Action::Submit(Arc::new(Run::new(batch, input.0, how)))
            }
            Ok(Message::Finish) => Action::Finish,
            Ok(Message::Decided(all)) => {
                group.agreement.decide(all);
                continue;
            }
            Ok(Message::Failed(failure)) => {
                group.fail(failure);
                continue;
            }
            Ok(Message::Alive) => continue,
            Ok(Message::End) => {
                group.end();
                // Rank 0 waits for the connection to close.
                return incoming.close();
            }
            Ok(message) => break format!("its process has sent {message:?}"),
            Err(reason) => break reason,
        };
        // The thread ends after this action. If it has panicked, that is a failure.
        let _ = actions.send(action);
    };
    incoming.close();
    group.lost(0, lost);
}

impl TensorExecutor {
    /// Creates the executor of this process's rank on `device`. All processes call it at the same time. Ranks other than 0
    /// [follow](Executor::follow) rank 0.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new), at all ranks, and [`Error::Rank`] if another process has failed.
    pub(in crate::exec) fn across(
        graph: &Graph,
        device: &Device,
        options: &ExecutorOptions,
        mut processes: Processes,
    ) -> Result<Self> {
        let (rank, ranks) = (processes.rank(), processes.gpus.len());
        let host = HostThreads::near(device, options.threads)?;
        let kind = options.select.all_reduce;
        let shares = || -> Result<Vec<_>> {
            if kind == AllReduceKind::Direct {
                let reason =
                    "a process cannot sum over the memory of another process's GPU: take auto or library";
                return Err(Error::argument("all-reduce", reason));
            }
            let shares = shard_stages(&stages(graph, 1)?, rank, ranks)?.into_iter();
            let executor = |share: crate::graph::Stage| {
                let executor = HipExecutor::of_share(&share.graph, device, host.clone(), options)?;
                Ok((share, executor))
            };
            shares.map(executor).collect()
        };
        let shares = shares();
        // Report missing memory before the first collective, so that no rank hangs.
        let own = shares.as_ref().map(|_| Vec::new()).map_err(ToString::to_string);
        let others = processes.exchange(own);
        let shares = shares?;
        others?;
        let id = processes.unique_id(device)?;
        let streams = Streams::of_process(device, id, (rank, ranks), options.select)?;
        let Processes { rendezvous, gpus } = processes;
        let plans = Arc::new(Plans::new(graph, options.dtype));
        let (links, incoming) = Links::new(rendezvous.into_connections())?;
        let group = Arc::new(Group::new(vec![streams], gpus.clone(), links.clone()));
        let mut worker = Worker::new(rank, shares, &group, &plans)?;
        let heartbeat = Heartbeat::new(links.clone())?;
        let mut this = Self::idle(
            std::slice::from_ref(device),
            group.clone(),
            plans,
            host,
            std::slice::from_ref(&worker),
        );
        let mut readers = Vec::new();
        let mut over = None;
        match links {
            Links::Followers(links) => {
                let followers = links.into_iter().zip(gpus.into_iter().skip(1)).enumerate();
                let follower = |(index, (link, gpu)): (usize, (Arc<Link>, String))| Follower {
                    rank: index + 1,
                    gpu,
                    link,
                    awaited: Mutex::default(),
                };
                let followers: Vec<Arc<Follower>> = followers.map(follower).map(Arc::new).collect();
                let others = followers.iter().cloned().map(Other::Process);
                this.lead(worker, others.collect())?;
                for (follower, incoming) in followers.into_iter().zip(incoming) {
                    let group = group.clone();
                    readers.push(reader(move || follower.listen(&group, incoming))?);
                }
            }
            Links::Leader(_) | Links::Here => {
                let (actions, receiver) = channel();
                let (open, is_over) = channel();
                over = Some(Mutex::new(is_over));
                this.spawn(rank, move || worker.follow(&receiver))?;
                for incoming in incoming {
                    let (group, actions, open) = (group.clone(), actions.clone(), open.clone());
                    readers.push(reader(move || {
                        listen_to_leader(&group, &actions, incoming);
                        drop(open);
                    })?);
                }
            }
        }
        this.connected = Some(Connected {
            readers,
            _heartbeat: heartbeat,
            over,
        });
        Ok(this)
    }

    /// Follows rank 0 until it has ended. For all other ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] if a rank has failed. [`Error::Argument`] if rank 0 is not in another process.
    pub(super) fn follow_leader(&self) -> Result<()> {
        let over = self
            .connected
            .as_ref()
            .and_then(|connected| connected.over.as_ref());
        let Some(over) = over else {
            let reason =
                "there is nobody to follow: it is for ranks other than 0 of a session of several processes";
            return Err(Error::argument("session", reason));
        };
        let over = over.lock();
        // Once a rank has failed, rank 0 may still report the cause.
        let mut failed: Option<Instant> = None;
        let wait = |failed: Option<Instant>| {
            over.recv_timeout(failed.map_or(ERROR_POLL_INTERVAL, |_| RANK_POLL_INTERVAL))
        };
        while wait(failed) == Err(RecvTimeoutError::Timeout)
            && failed.is_none_or(|at| at.elapsed() < ERROR_POLL_INTERVAL)
        {
            if failed.is_none() {
                self.group.check();
                failed = self.group.working().is_err().then(Instant::now);
            }
        }
        self.group.tell()
    }

    /// Stops following rank 0. Unless rank 0 has ended, it treats this as a failure.
    pub(super) fn stop_following(&self) {
        if let Links::Leader(leader) = self.group.links() {
            self.group.leave("its session was dropped before rank 0's");
            leader.close();
        }
    }

    /// Tells the other processes to end.
    pub(super) fn stop_followers(&mut self) {
        if let Links::Followers(_) = self.group.links() {
            self.group.end();
            self.group.links().tell(&Message::End);
        }
        let readers = self.connected.take().map(|connected| connected.readers);
        for reader in readers.into_iter().flatten() {
            // The thread cannot have panicked: it only records messages.
            let _ = reader.join();
        }
    }
}

/// Starts a thread that handles messages from another process.
fn reader(read: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name("hipvit-link".into());
    thread
        .spawn(read)
        .map_err(|error| Error::resource("threads", error))
}
