//! The replicas of a model: one executor for each GPU, or one for the CPU. A run goes to the replica with the fewest images in
//! flight.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::Result;
use crate::exec::{Executor, PendingRun, Replays, Staging};
use crate::hip::{Event, PinnedBuffer};

/// The executors of a session.
pub(super) struct Replicas {
    executors: Vec<Executor>,
    loads: Arc<Mutex<Vec<Load>>>,
    /// Counts what is staged, so that the memory is near each GPU in turn.
    staged: AtomicUsize,
}

/// What a replica is doing.
#[derive(Default)]
struct Load {
    runs: Vec<Run>,
    /// When it was last given a run.
    turn: u64,
    /// The images that were submitted to it so far.
    submitted: u64,
}

/// A run that was given to a replica.
struct Run {
    id: u64,
    images: usize,
    /// Where the device ends it; unknown until it is submitted.
    end: Option<Event>,
}

impl Load {
    /// The images in flight; forgets the runs that the device has done.
    fn images(&mut self) -> Result<usize> {
        let mut failed = None;
        self.runs
            .retain(|run| match run.end.as_ref().map(Event::is_done) {
                Some(Ok(done)) => !done,
                Some(Err(error)) => {
                    failed.get_or_insert(error);
                    true
                }
                None => true,
            });
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(self.runs.iter().map(|run| run.images).sum()),
        }
    }
}

/// A replica that was chosen for a run, until the run is finished or given up.
pub(super) struct Slot {
    replica: usize,
    id: u64,
    loads: Arc<Mutex<Vec<Load>>>,
}

impl Slot {
    pub(super) fn replica(&self) -> usize {
        self.replica
    }

    /// The run was submitted: from its end the replica is free, though nobody may have taken the results.
    pub(super) fn submitted(&self, run: &PendingRun) {
        let mut loads = self.loads.lock();
        let Load { runs, submitted, .. } = &mut loads[self.replica];
        if let Some(chosen) = runs.iter_mut().find(|run| run.id == self.id) {
            chosen.end = run.end();
            *submitted += chosen.images as u64;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut loads = self.loads.lock();
        loads[self.replica].runs.retain(|run| run.id != self.id);
    }
}

impl Replicas {
    /// There is one executor at least.
    pub(super) fn new(executors: Vec<Executor>) -> Self {
        Self {
            loads: Arc::new(Mutex::new(executors.iter().map(|_| Load::default()).collect())),
            staged: AtomicUsize::new(0),
            executors,
        }
    }

    pub(super) fn all(&self) -> &[Executor] {
        &self.executors
    }

    pub(super) fn all_mut(&mut self) -> &mut [Executor] {
        &mut self.executors
    }

    pub(super) fn len(&self) -> usize {
        self.executors.len()
    }

    /// The first: what all of them have in common is asked of it.
    pub(super) fn first(&self) -> &Executor {
        &self.executors[0]
    }

    /// The images that were submitted to each replica so far.
    pub(super) fn images(&self) -> Vec<u64> {
        self.loads.lock().iter().map(|load| load.submitted).collect()
    }

    /// The number of host threads of all replicas, some of which share theirs.
    pub(super) fn threads(&self) -> usize {
        let new = |index: &usize| {
            let before = &self.executors[..*index];
            !before
                .iter()
                .any(|other| other.shares_threads(&self.executors[*index]))
        };
        let new = (0..self.len()).filter(new);
        new.map(|index| self.executors[index].threads()).sum()
    }

    /// How the runs of all replicas were carried out.
    pub(super) fn replays(&self) -> Option<Replays> {
        let each = self.executors.iter().filter_map(Executor::replays);
        each.reduce(|all, one| Replays {
            replayed_runs: all.replayed_runs + one.replayed_runs,
            eager_runs: all.eager_runs + one.eager_runs,
            checked_runs: all.checked_runs + one.checked_runs,
            recomputed_runs: all.recomputed_runs + one.recomputed_runs,
            fallback: all.fallback.or(one.fallback),
            all_reduce: all.all_reduce.or(one.all_reduce),
            no_direct: all.no_direct.or(one.no_direct),
        })
    }

    /// The replica whose memory the next input is staged in.
    pub(super) fn next_to_stage(&self) -> &Executor {
        let turn = self.staged.fetch_add(1, Ordering::Relaxed);
        &self.executors[turn % self.len()]
    }

    /// The replica that pinned memory is near to.
    fn home(&self, memory: &PinnedBuffer<u8>) -> Option<usize> {
        let is_home = |executor: &Executor| executor.gpu() == Some(memory.device());
        self.executors.iter().position(is_home)
    }

    /// Chooses the replica with the fewest images in flight for a run of `images` images. Among equals it is the one that
    /// `input` is near to, else the one that was idle for longest.
    ///
    /// # Errors
    ///
    /// What a GPU's runs failed with.
    pub(super) fn choose(&self, images: usize, input: Option<&Staging>) -> Result<Slot> {
        let mut replica = 0;
        let mut loads = self.loads.lock();
        if self.len() > 1 {
            let home = match input {
                Some(Staging::Pinned(memory)) => self.home(memory),
                _ => None,
            };
            let mut least = None;
            for (index, load) in loads.iter_mut().enumerate() {
                let rank = (load.images()?, home != Some(index), load.turn);
                if least.is_none_or(|least| rank < least) {
                    (least, replica) = (Some(rank), index);
                }
            }
        }
        let id = loads.iter().map(|load| load.turn).max().unwrap_or(0) + 1;
        loads[replica].turn = id;
        loads[replica].runs.push(Run {
            id,
            images,
            end: None,
        });
        Ok(Slot {
            replica,
            id,
            loads: self.loads.clone(),
        })
    }

    /// Takes the memory of inputs back, each to the replica that it is near to.
    pub(super) fn keep(&self, memory: Vec<Staging>) {
        for staging in memory {
            if let Staging::Pinned(pinned) = staging {
                let home = self.home(&pinned).unwrap_or(0);
                self.executors[home].keep(pinned);
            }
        }
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.executors.fmt(f)
    }
}
