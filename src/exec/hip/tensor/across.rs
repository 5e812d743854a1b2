//! Ranks in several processes with one GPU each. Rank 0's process controls the others, which follow it.
//!
//! Each process creates its own rank of the communicators, from ids that rank 0 provides. Then rank 0 sends every run with its input, and
//! when to wait for it. It also counts votes and forwards failures of ranks. A lost connection is a failure of the process at its other
//! end.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use parking_lot::Mutex;

use super::followers::{Connected, Follower, listen_to_leader, reader};
use super::group::{Group, Streams};
use super::link::{Heartbeat, Link, Links, Message};
use super::processes::Processes;
use super::worker::{Other, Worker};
use super::{ERROR_POLL_INTERVAL, RANK_POLL_INTERVAL, TensorExecutor};
use crate::error::{Error, Result};
use crate::exec::hip::executor::HipExecutor;
use crate::exec::options::ExecutorOptions;
use crate::exec::plans::Plans;
use crate::exec::select::AllReduceKind;
use crate::exec::threads::HostThreads;
use crate::graph::{Graph, shard_stages, stages};
use crate::hip::Device;

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
        let others = processes.exchange(shares.as_ref().map(|_| Vec::new()));
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
