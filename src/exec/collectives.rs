//! Exchange of tensors between the processes of a training run, over TCP.
//!
//! One thread runs the exchanges, in the order in which they start, which is equal at all ranks. So a run goes on while its tensors are
//! exchanged.

mod reduce;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use self::reduce::{Group, Wire};
use crate::cpu;
use crate::error::{Error, Result};
use crate::hip::{self, Mesh};
use crate::ops::Exchange;
use crate::ops::exchange::ExchangeKind;

/// Connections of this process to the other ranks of a training run, for the [exchanges](Exchange) of its graph and for messages.
///
/// Sums have a fixed order: that of the ranks, within each group and then over the groups. So all ranks get equal bits, also in repeated
/// runs.
#[derive(Debug)]
pub struct Collectives {
    mesh: Arc<Mesh>,
    jobs: Option<Sender<Job>>,
    worker: Option<JoinHandle<()>>,
    /// Exchanges that have started, by their id.
    started: Mutex<HashMap<u32, Receiver<hip::Result<Vec<f32>>>>>,
    /// The first error of an exchange.
    failure: Mutex<Option<hip::Error>>,
}

/// Groups of consecutive ranks, such as those of a host. The ranks of a group divide tensors, and the groups have copies of the parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Groups {
    /// The ranks of this rank's group.
    within: Group,
    /// The ranks with this rank's number in their group.
    across: Group,
}

impl Groups {
    fn new(rank: usize, ranks: usize, size: usize) -> Self {
        let (group, number) = (rank / size, rank % size);
        Self {
            within: Group::new((group * size..(group + 1) * size).collect(), number),
            across: Group::new((number..ranks).step_by(size).collect(), group),
        }
    }
}

/// Work of the thread.
enum Job {
    Exchange {
        exchange: Exchange,
        values: Vec<f32>,
        done: Sender<hip::Result<Vec<f32>>>,
    },
    Message {
        bytes: Vec<u8>,
        done: Sender<hip::Result<Vec<Vec<u8>>>>,
    },
}

impl Collectives {
    /// Creates the collectives of all ranks of a mesh.
    ///
    /// # Errors
    ///
    /// [`Error::Resource`] if the thread cannot be started.
    pub fn new(mesh: Mesh) -> Result<Self> {
        let mesh = Arc::new(mesh);
        let (jobs, queue) = mpsc::channel();
        let work = {
            let mesh = Arc::clone(&mesh);
            move || run_all(&mesh, &queue)
        };
        let thread = thread::Builder::new().name("hipvit-exchange".into());
        let worker = thread
            .spawn(work)
            .map_err(|error| Error::resource("threads", error))?;
        Ok(Self {
            mesh,
            jobs: Some(jobs),
            worker: Some(worker),
            started: Mutex::default(),
            failure: Mutex::default(),
        })
    }

    /// Returns this process's rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.mesh.world().rank()
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.mesh.world().size()
    }

    /// Returns the bytes of all ranks, in the order of the ranks. All ranks must call this at the same point.
    ///
    /// # Errors
    ///
    /// [`Error::Hip`] with the rank that is lost or has failed.
    pub fn gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let (done, result) = mpsc::channel();
        self.submit(Job::Message { bytes, done });
        Ok(result.recv().unwrap_or_else(|_| Err(self.ended()))?)
    }

    /// Tells the other ranks why this one ends. Their next exchange fails with this reason.
    pub fn fail(&self, reason: &str) {
        self.mesh.fail(reason);
    }

    /// Returns true if another rank has ended, is unreachable or has failed.
    pub(crate) fn has_lost(&self) -> bool {
        self.mesh.has_lost()
    }

    /// Returns the first error of an exchange.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().take().map(Error::Hip)
    }

    fn submit(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // If the thread has ended, so has the sender of the result.
            let _ = jobs.send(job);
        }
    }

    fn ended(&self) -> hip::Error {
        hip::Error::argument("ranks", "an earlier exchange has failed")
    }
}

impl cpu::Collectives for Collectives {
    fn rank(&self) -> usize {
        self.rank()
    }

    fn start(&self, exchange: Exchange, values: Vec<f32>) {
        let (done, result) = mpsc::channel();
        let id = exchange.id;
        self.submit(Job::Exchange {
            exchange,
            values,
            done,
        });
        self.started.lock().insert(id, result);
    }

    fn skip(&self, exchange: Exchange, values: Vec<f32>) {
        let (done, result) = mpsc::channel();
        let values = match exchange.kind {
            ExchangeKind::Scatter => {
                let within = Group::new((0..exchange.ranks).collect(), self.rank() % exchange.ranks);
                within.own(&values).to_vec()
            }
            ExchangeKind::Sum | ExchangeKind::Gather => values,
        };
        // The receiver exists.
        let _ = done.send(Ok(values));
        self.started.lock().insert(exchange.id, result);
    }

    fn finish(&self, id: u32) -> Result<Vec<f32>, String> {
        let result = self.started.lock().remove(&id);
        let result = result.ok_or_else(|| format!("the exchange {id} was not started"))?;
        result
            .recv()
            .unwrap_or_else(|_| Err(self.ended()))
            .map_err(|error| {
                let text = error.to_string();
                self.failure.lock().get_or_insert(error);
                text
            })
    }
}

impl Drop for Collectives {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// Runs the jobs. Ends at the first error, since the ranks are no longer in step.
fn run_all(mesh: &Mesh, jobs: &Receiver<Job>) {
    for job in jobs {
        let failed = match job {
            Job::Exchange {
                exchange,
                values,
                done,
            } => {
                let groups = Groups::new(mesh.world().rank(), mesh.world().size(), exchange.ranks);
                let result = groups.run(mesh, &exchange, values);
                let failed = result.is_err();
                let _ = done.send(result);
                failed
            }
            Job::Message { bytes, done } => {
                let result = messages(mesh, bytes);
                let failed = result.is_err();
                let _ = done.send(result);
                failed
            }
        };
        if failed {
            return;
        }
    }
}

impl Groups {
    /// Runs an exchange.
    fn run(&self, mesh: &Mesh, exchange: &Exchange, values: Vec<f32>) -> hip::Result<Vec<f32>> {
        let wire = if exchange.bf16_wire { Wire::Bf16 } else { Wire::F32 };
        let Self { within, across } = self;
        match exchange.kind {
            ExchangeKind::Sum if across.len() == 1 => within.all_reduce(mesh, &values, wire),
            ExchangeKind::Sum => {
                let part = within.reduce_scatter(mesh, &values, wire)?;
                let part = across.all_reduce(mesh, &part, wire)?;
                within.all_gather(mesh, &part, values.len(), wire)
            }
            ExchangeKind::Scatter => {
                let part = within.reduce_scatter(mesh, &values, wire)?;
                if across.len() == 1 {
                    return Ok(part);
                }
                across.all_reduce(mesh, &part, wire)
            }
            ExchangeKind::Gather => within.all_gather(mesh, &values, values.len() * within.len(), wire),
        }
    }
}

/// Sends bytes to all ranks, and returns those of all ranks.
fn messages(mesh: &Mesh, bytes: Vec<u8>) -> hip::Result<Vec<Vec<u8>>> {
    let (own, ranks) = (mesh.world().rank(), mesh.world().size());
    for rank in (0..ranks).filter(|&rank| rank != own) {
        mesh.send(rank, bytes.clone())?;
    }
    let mut bytes = Some(bytes);
    let each = (0..ranks).map(|rank| match bytes.take_if(|_| rank == own) {
        Some(bytes) => Ok(bytes),
        None => mesh.receive(rank),
    });
    each.collect()
}

#[cfg(test)]
mod tests;
