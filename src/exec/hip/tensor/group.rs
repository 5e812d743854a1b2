//! State that a model's ranks share: streams, communicators, and the first failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::agreement::Agreement;
use super::failure::Failure;
use super::link::{Links, Message};
use crate::error::{Error, Result};
use crate::exec::hip::direct::{DirectGroup, NoDirect};
use crate::exec::hip::rank::{Rank, RankStream};
use crate::exec::select::{AllReduceKind, SelectOptions};
use crate::hip::{self, Comm, CommOptions, Device, UniqueId};
use crate::tensor::DType;

/// Streams of a stage's ranks in this process.
pub(super) struct Streams {
    ranks: Vec<RankStream>,
    /// Number of the first rank.
    first_rank: usize,
    /// Reason why RCCL computes all sums.
    no_direct: Option<NoDirect>,
}

/// State that all ranks share.
pub(super) struct Group {
    /// The streams of this process's ranks, by stage.
    pub(super) stages: Vec<Streams>,
    pub(super) agreement: Arc<Agreement>,
    /// Names of all GPUs, by stage and then by rank.
    gpus: Vec<String>,
    links: Links,
    /// Set at the end of the work. A connection that closes afterwards is not a failure.
    over: AtomicBool,
    failure: Mutex<Option<Failure>>,
    /// Set once the failure was returned to a caller. The cause no longer replaces it then.
    told: AtomicBool,
}

fn options(select: SelectOptions) -> CommOptions {
    CommOptions::with_timeout(select.collective_timeout)
}

impl Streams {
    pub(super) fn new(
        devices: &[Device],
        dtype: DType,
        select: SelectOptions,
        several: bool,
    ) -> Result<Self> {
        let streams = devices
            .iter()
            .map(Device::stream)
            .collect::<hip::Result<Vec<_>>>()?;
        let comms = Comm::all_with(&streams, options(select))?;
        let (direct, no_direct) = match DirectGroup::ranks(&streams, dtype, select.all_reduce)? {
            Ok(direct) => (direct, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let rank = |(rank, comm)| RankStream {
            comm,
            direct: direct.get(rank).cloned(),
            training: None,
            several,
        };
        Ok(Self {
            ranks: comms.into_iter().enumerate().map(rank).collect(),
            first_rank: 0,
            no_direct,
        })
    }

    /// Returns the stream of a rank of this process.
    pub(super) fn of(&self, rank: usize) -> &RankStream {
        &self.ranks[rank - self.first_rank]
    }

    /// Creates the group of a process with one rank of several. `rank` is its number and the number of ranks. Waits for the other
    /// processes.
    pub(super) fn of_process(
        device: &Device,
        id: UniqueId,
        (rank, ranks): (usize, usize),
        select: SelectOptions,
    ) -> Result<Self> {
        let on = RankStream {
            comm: Comm::with_id_and(&device.stream()?, id, rank, ranks, options(select))?,
            direct: None,
            training: None,
            several: false,
        };
        let reason = match select.all_reduce {
            AllReduceKind::Library => "as requested",
            _ => "the GPUs are of several processes",
        };
        Ok(Self {
            ranks: vec![on],
            first_rank: rank,
            no_direct: Some(NoDirect::chosen(reason)),
        })
    }

    /// Returns the streams of this process with their ranks.
    fn iter(&self) -> impl Iterator<Item = (usize, &RankStream)> {
        (self.first_rank..).zip(&self.ranks)
    }

    pub(super) fn direct(&self) -> Option<&DirectGroup> {
        let first = self.ranks.first()?;
        Some(first.direct.as_ref()?.group())
    }
}

/// Names the implementation of a stage's all-reduce, and the reason for it.
impl std::fmt::Display for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.direct(), &self.no_direct) {
            (Some(direct), _) => direct.fmt(f),
            (None, Some(NoDirect { reason, .. })) => write!(f, "RCCL ({reason})"),
            (None, None) => f.write_str("RCCL"),
        }
    }
}

/// Names the implementation of the all-reduce, and the reason for it. Once if it is the same in all stages.
impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stages: Vec<String> = self.stages.iter().map(Streams::to_string).collect();
        match stages.as_slice() {
            [first, others @ ..] if others.iter().all(|other| other == first) => f.write_str(first),
            stages => {
                let each = stages.iter().enumerate();
                let each: Vec<String> = each
                    .map(|(stage, sums)| format!("stage {stage}: {sums}"))
                    .collect();
                f.write_str(&each.join("; "))
            }
        }
    }
}

impl Group {
    /// Creates a group from the streams of each stage. `gpus` are divided evenly among the stages.
    pub(super) fn new(stages: Vec<Streams>, gpus: Vec<String>, links: Links) -> Self {
        let ranks = gpus.len() / stages.len().max(1);
        Self {
            stages,
            agreement: Arc::new(Agreement::new(ranks, links.clone())),
            gpus,
            links,
            over: AtomicBool::new(false),
            failure: Mutex::default(),
            told: AtomicBool::new(false),
        }
    }

    /// Returns the reason why RCCL sums although the GPUs can access each other's memory.
    pub(super) fn no_direct(&self) -> Option<String> {
        let reasons = self
            .stages
            .iter()
            .filter_map(|streams| streams.no_direct.as_ref());
        let mut failed = reasons.filter(|no_direct| no_direct.failed);
        failed.next().map(|no_direct| no_direct.reason.clone())
    }

    /// The processes of the other ranks.
    pub(super) fn links(&self) -> &Links {
        &self.links
    }

    /// Records the end of the work.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Ends this process's part. Before the end of the work, this is a failure of its rank.
    pub(super) fn leave(&self, reason: &str) {
        if !self.over.load(Ordering::Acquire) {
            self.fail(self.failure(0, self.stages[0].first_rank, reason));
        }
        self.end();
    }

    /// Records that a rank's process is lost. Before the end of the work, this is a failure.
    pub(super) fn lost(&self, rank: usize, reason: String) {
        if !self.over.load(Ordering::Acquire) {
            self.fail(self.failure(0, rank, reason));
        }
    }

    /// Returns a rank of a stage for its executor.
    pub(super) fn rank(&self, stage: usize, rank: usize) -> Rank {
        let number = stage * self.ranks() + rank;
        Rank {
            number,
            count: self.gpus.len(),
            gpu: self.gpus[number].clone(),
            on: self.stages[stage].of(rank).clone(),
            agreement: self.agreement.clone(),
        }
    }

    /// Returns the number of ranks of a stage.
    pub(super) fn ranks(&self) -> usize {
        self.gpus.len() / self.stages.len().max(1)
    }

    /// Returns true if a failure was returned to a caller.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// Returns an error if a rank has failed.
    pub(super) fn working(&self) -> Result<()> {
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

    /// Returns [`working`](Self::working) to a caller. From then on the cause no longer replaces the failure.
    pub(super) fn tell(&self) -> Result<()> {
        {
            let failure = self.failure.lock();
            if failure.is_some() {
                self.told.store(true, Ordering::Relaxed);
            }
        }
        self.working()
    }

    /// Creates the failure of a rank on its GPU of a stage.
    pub(super) fn failure(&self, stage: usize, rank: usize, reason: impl ToString) -> Failure {
        let number = stage * self.ranks() + rank;
        Failure {
            rank: number,
            ranks: self.gpus.len(),
            device: self.gpus[number].clone(),
            reason: reason.to_string(),
            follows: false,
        }
    }

    /// Creates the failure for a HIP or RCCL error on a rank's GPU of a stage.
    pub(super) fn failure_on(&self, stage: usize, rank: usize, error: &hip::Error) -> Failure {
        Failure {
            follows: matches!(error, hip::Error::Communicator { .. }),
            ..self.failure(stage, rank, error)
        }
    }

    /// Creates the failure of a rank's thread. `error` may name the GPU.
    pub(super) fn failure_of(&self, rank: usize, error: Error) -> Failure {
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
                // The GPU's name identifies the stage.
                let of = |streams: &Streams| {
                    let name = streams.of(rank).comm.stream().device().name();
                    matches!(&error, hip::Error::Communicator { device, .. } if device == name)
                };
                let stage = self.stages.iter().position(of).unwrap_or(0);
                self.failure_on(stage, rank, &error)
            }
            error => self.failure(0, rank, error),
        }
    }

    /// Returns the failure of a rank whose thread has ended.
    pub(super) fn ended(&self, rank: usize) -> Failure {
        self.failure(0, rank, "its thread has ended")
    }

    /// Records the first failure, and aborts what the other ranks wait for.
    pub(super) fn fail(&self, failure: Failure) {
        let is_first = {
            let mut noted = self.failure.lock();
            if let Some(first) = &*noted {
                // A rank that finds the group failed reports the same failure again.
                let repeated = (first.rank, &first.reason) == (failure.rank, &failure.reason);
                // The cause of the first reported failure.
                let is_cause = first.follows && !failure.follows && !repeated && !self.is_told();
                if !is_cause {
                    return;
                }
            }
            noted.replace(failure.clone()).is_none()
        };
        if is_first {
            self.agreement.end();
        }
        // Send it before aborting this process's ranks, whose kernels may wait for those of the others.
        self.links.tell(&Message::Failed(failure));
        if !is_first {
            return;
        }
        for streams in &self.stages {
            if let Some(direct) = streams.direct() {
                direct.abort();
            }
            for (_, on) in streams.iter() {
                // Only the end of the waits matters. The error of a lost GPU does not.
                let _ = on.comm.abort();
            }
        }
    }

    /// Polls the communicators of this process's ranks for errors.
    pub(super) fn check(&self) {
        for (stage, streams) in self.stages.iter().enumerate() {
            for (rank, on) in streams.iter() {
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
