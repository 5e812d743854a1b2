//! Replicas of a model: executors of one graph that take batches in turn. A run goes to the replica with the fewest images in flight.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::executor::{
    Executor, ExecutorInfo, FinishOptions, Finished, PendingRun, Reservation, Statistics, Submission,
};
use super::hip::{HipExecutor, HostConstants, SparseWeights};
use super::input::Inputs;
use super::options::ExecutorOptions;
use super::replays::Replays;
use super::slabs::Slabs;
use super::staging::Staging;
use super::states::check_replicable;
use super::threads::HostThreads;
use crate::dtype::from_hip;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::hip::{Device, Event, NumaNode};

/// Executors of one graph that take batches in turn.
#[derive(Debug)]
pub struct Replicas {
    info: ExecutorInfo,
    executors: Vec<Arc<dyn Executor>>,
    loads: Arc<Mutex<Vec<Load>>>,
    /// Number of inputs staged so far. Distributes staging memory over the GPUs in turn.
    staged: AtomicUsize,
}

/// The runs of a replica.
#[derive(Debug, Default)]
struct Load {
    runs: Vec<Run>,
    /// Number of the last run assigned to the replica.
    last_run: u64,
    /// Images submitted to the replica so far.
    submitted: u64,
}

/// A run assigned to a replica.
#[derive(Debug)]
struct Run {
    id: u64,
    images: usize,
    /// Event at which the device finishes the run. `None` until the run is submitted.
    end: Option<Event>,
}

impl Load {
    /// Returns the number of images in flight. Forgets the runs that the device has finished.
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

/// Registration of a run at its replica. Removed when the run finishes or is dropped.
struct Slot {
    replica: usize,
    id: u64,
    loads: Arc<Mutex<Vec<Load>>>,
}

impl Slot {
    /// Records the end of the run. The replica is free from then on, even before its results are taken.
    fn submitted(&self, end: Option<Event>) {
        let mut loads = self.loads.lock();
        let Load { runs, submitted, .. } = &mut loads[self.replica];
        if let Some(run) = runs.iter_mut().find(|run| run.id == self.id) {
            run.end = end;
            *submitted += run.images as u64;
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
    /// Wraps executors of one graph, at least one.
    pub fn new(executors: Vec<Arc<dyn Executor>>) -> Self {
        let infos: Vec<&ExecutorInfo> = executors.iter().map(|executor| executor.info()).collect();
        let info = ExecutorInfo {
            devices: infos.iter().flat_map(|info| info.devices.clone()).collect(),
            in_flight: infos.iter().map(|info| info.in_flight).sum(),
            weight_bytes: infos.iter().flat_map(|info| info.weight_bytes.clone()).collect(),
            ..infos[0].clone()
        };
        Self {
            info,
            loads: Arc::new(Mutex::new(executors.iter().map(|_| Load::default()).collect())),
            staged: AtomicUsize::new(0),
            executors,
        }
    }

    /// Returns the replica to stage the next input near.
    fn next_to_stage(&self) -> &dyn Executor {
        let staged = self.staged.fetch_add(1, Ordering::Relaxed);
        &*self.executors[staged % self.executors.len()]
    }

    /// Returns the replica near the pinned memory.
    fn home(&self, staging: &Staging) -> Option<usize> {
        let device = staging.device()?;
        self.executors
            .iter()
            .position(|executor| executor.info().devices.first() == Some(device))
    }

    /// Chooses the replica with the fewest images in flight for a run of `images` images. Among equals, prefers the one near
    /// `input`, then the one that was idle for longest.
    ///
    /// # Errors
    ///
    /// The error of a GPU's earlier run.
    fn choose(&self, images: usize, input: Option<&Staging>) -> Result<Slot> {
        let mut replica = 0;
        let mut loads = self.loads.lock();
        if self.executors.len() > 1 {
            let home = input.and_then(|staging| self.home(staging));
            let mut least = None;
            for (index, load) in loads.iter_mut().enumerate() {
                let rank = (load.images()?, home != Some(index), load.last_run);
                if least.is_none_or(|least| rank < least) {
                    (least, replica) = (Some(rank), index);
                }
            }
        }
        let id = loads.iter().map(|load| load.last_run).max().unwrap_or(0) + 1;
        loads[replica].last_run = id;
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
}

impl Executor for Replicas {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        self.executors[0].plan(batch)
    }

    fn stage(&self, bytes: usize, capacity: usize) -> Result<Staging> {
        self.next_to_stage().stage(bytes, capacity)
    }

    fn slabs(&self) -> Option<Arc<Slabs>> {
        self.next_to_stage().slabs()
    }

    fn reserve(self: Arc<Self>, plan: &Arc<Plan>, near: Option<&Staging>) -> Result<Box<dyn Reservation>> {
        let slot = self.choose(plan.batch(), near)?;
        let reservation = self.executors[slot.replica].clone().reserve(plan, near)?;
        Ok(Box::new(ReplicaReservation { slot, reservation }))
    }

    fn statistics(&self) -> Statistics {
        let each = self.executors.iter();
        let each = each.filter_map(|executor| executor.statistics().replays);
        let replays = each.reduce(|all, one| Replays {
            replayed_runs: all.replayed_runs + one.replayed_runs,
            eager_runs: all.eager_runs + one.eager_runs,
            checked_runs: all.checked_runs + one.checked_runs,
            recomputed_runs: all.recomputed_runs + one.recomputed_runs,
            fallback: all.fallback.or(one.fallback),
            all_reduce: all.all_reduce.or(one.all_reduce),
            no_direct: all.no_direct.or(one.no_direct),
        });
        Statistics {
            replays,
            images: self.loads.lock().iter().map(|load| load.submitted).collect(),
        }
    }

    fn replicas(&self) -> &[Arc<dyn Executor>] {
        &self.executors
    }
}

/// Memory for a run on one of the replicas.
struct ReplicaReservation {
    slot: Slot,
    reservation: Box<dyn Reservation>,
}

impl Reservation for ReplicaReservation {
    fn submit(self: Box<Self>, inputs: Inputs<'_>, submission: Submission) -> Result<Box<dyn PendingRun>> {
        let Self { slot, reservation } = *self;
        let run = reservation.submit(inputs, submission)?;
        slot.submitted(run.end());
        Ok(Box::new(ReplicaRun { run, _slot: slot }))
    }
}

/// A run on one of the replicas.
struct ReplicaRun {
    run: Box<dyn PendingRun>,
    _slot: Slot,
}

impl PendingRun for ReplicaRun {
    fn is_done(&self) -> Result<bool> {
        self.run.is_done()
    }

    fn end(&self) -> Option<Event> {
        self.run.end()
    }

    fn finish(self: Box<Self>, options: FinishOptions<'_>) -> Result<Finished> {
        self.run.finish(options)
    }
}

/// Makes an executor on each of the GPUs. The weights are converted once, and uploaded to all GPUs at the same time.
///
/// # Errors
///
/// [`Error::Argument`] if the graph has parameters or states, which the replicas would not share. The errors of [`HipExecutor::new`] on any of the GPUs.
pub(super) fn on_each(
    graph: &Graph,
    devices: &[Device],
    options: &ExecutorOptions,
) -> Result<Vec<Arc<dyn Executor>>> {
    check_replicable(graph)?;
    let mut nodes: Vec<Option<&NumaNode>> = Vec::new();
    for device in devices {
        if !nodes.contains(&device.numa_node()) {
            nodes.push(device.numa_node());
        }
    }
    let threads = options.threads.map(|threads| (threads / nodes.len()).max(1));
    let near = |node: &Option<&NumaNode>| devices.iter().find(|device| device.numa_node() == *node);
    let pools = nodes
        .iter()
        .filter_map(near)
        .map(|device| HostThreads::on_node(device, threads, options.threads));
    let pools: Vec<HostThreads> = pools.collect::<Result<_>>()?;
    let pool = |device: &Device| {
        let node = nodes.iter().position(|node| *node == device.numa_node());
        pools[node.unwrap_or(0)].clone()
    };

    // All GPUs of a model must have the same FP8 encoding.
    let float8 = devices
        .first()
        .and_then(|device| device.properties().float8().map(from_hip));
    // All GPUs must have the same index format of 2:4 sparse weights.
    let sparse = match devices.first() {
        Some(device) => SparseWeights::of(
            graph,
            device,
            options.dtype,
            options.select,
            options.tuned.as_ref(),
        )?,
        None => None,
    };
    let constants = HostConstants::new(graph, options.dtype, float8, sparse.as_ref());
    let make =
        |device: &Device| HipExecutor::with_constants(graph, &constants, device, pool(device), options);
    // Kernels are compiled by the first GPU of each architecture, and loaded by the others.
    let is_first = |index: usize| {
        let target = |device: &Device| device.properties().target.clone();
        let before = devices[..index].iter().map(target);
        before.into_iter().all(|before| before != target(&devices[index]))
    };
    let mut made: Vec<Option<HipExecutor>> = devices.iter().map(|_| None).collect();
    for first in [true, false] {
        thread::scope(|scope| -> Result<()> {
            let indices = (0..devices.len()).filter(|&index| is_first(index) == first);
            let start = |index: usize| -> Result<_> {
                let make = &make;
                let thread = thread::Builder::new().spawn_scoped(scope, move || make(&devices[index]));
                Ok((index, thread.map_err(|error| Error::resource("threads", error))?))
            };
            let started: Vec<_> = indices.map(start).collect::<Result<_>>()?;
            for (index, thread) in started {
                made[index] = Some(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
            }
            Ok(())
        })?;
    }
    let shared = |executor| Arc::new(executor) as Arc<dyn Executor>;
    Ok(made.into_iter().flatten().map(shared).collect())
}
