//! A GPU that trains with others: each is a rank in a process of its own, with its share of the images.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::exchanges::{GroupComms, RankComms};
use super::executor::HipExecutor;
use super::rank::{Agree, Rank, RankStream};
use crate::error::{Error, Result};
use crate::exec::collectives::Collectives;
use crate::graph::Graph;
use crate::hip::{Comm, CommOptions, SideStream, Stream, UniqueId};
use crate::ops::Op;

/// Interval between checks for lost ranks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Decisions of the ranks, over the connections between them.
struct Votes {
    collectives: Arc<Collectives>,
    /// True after the executor's end.
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Agree for Votes {
    fn agree(&self, mine: bool) -> bool {
        let votes = self.collectives.gather(vec![u8::from(mine)]);
        votes.is_ok_and(|votes| votes.iter().all(|vote| vote == &[1]))
    }
}

impl Drop for Votes {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            // It must not use a communicator when the process ends. A panic of it has been reported.
            let _ = watcher.join();
        }
    }
}

impl HipExecutor {
    /// Makes the executor one of several ranks that train together. All ranks call this at the same point.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameters. The errors of creating a communicator. [`Error::Hip`] with the rank that is lost.
    pub(in crate::exec) fn train_with(
        &mut self,
        collectives: &Arc<Collectives>,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<()> {
        let Some(states) = &self.states else {
            let reason = "has no parameters, and only training steps exchange tensors between ranks";
            return Err(Error::argument("ranks", reason));
        };
        let (rank, ranks) = (collectives.rank(), collectives.ranks());
        let creation = Creation {
            collectives,
            stream: states.stream(),
            options: CommOptions::with_timeout(timeout),
        };
        let all = creation.comm(ranks, 1)?;
        let comms = RankComms {
            groups: match group_size(&self.info.graph, ranks) {
                Some(size) => Some(GroupComms {
                    within: creation.comm(size, 1)?,
                    across: creation.comm(ranks / size, size)?,
                }),
                None => None,
            },
            side: SideStream::new(states.stream())?,
            all: all.clone(),
        };
        let comms = Arc::new(comms);
        let ended = Arc::new(AtomicBool::new(false));
        let watched = (Arc::downgrade(&comms), Arc::downgrade(collectives));
        let watcher = watch(watched, ended.clone())?;
        self.set_rank(Rank {
            number: rank,
            count: ranks,
            gpu: self.device.name().to_owned(),
            on: RankStream {
                comm: all,
                direct: None,
                training: Some(comms),
                several: true,
            },
            agreement: Arc::new(Votes {
                collectives: collectives.clone(),
                ended,
                watcher: Some(watcher),
            }),
        });
        Ok(())
    }
}

/// Returns the number of ranks that divide tensors, if it is not the number of all ranks.
fn group_size(graph: &Graph, ranks: usize) -> Option<usize> {
    let sizes = graph.nodes().iter().filter_map(|node| match &node.op {
        Op::Exchange(exchange) => Some(exchange.ranks),
        _ => None,
    });
    sizes.min().filter(|&size| size < ranks)
}

/// What communicators are created with.
struct Creation<'a> {
    collectives: &'a Collectives,
    stream: &'a Stream,
    options: CommOptions,
}

impl Creation<'_> {
    /// Creates the communicator of `size` ranks with this one, each `stride` ranks after the last. All ranks call this at the same point.
    fn comm(&self, size: usize, stride: usize) -> Result<Comm> {
        let rank = self.collectives.rank();
        let number = rank / stride % size;
        let first = rank - number * stride;
        let id = if number == 0 {
            UniqueId::new(self.stream.device())?.to_bytes().to_vec()
        } else {
            Vec::new()
        };
        let ids = self.collectives.gather(id)?;
        let id = ids
            .get(first)
            .and_then(|id| <[u8; 128]>::try_from(id.as_slice()).ok());
        let id = id.ok_or_else(|| {
            Error::argument("ranks", format!("rank {first} runs another version of hipvit"))
        })?;
        let id = UniqueId::from_bytes(id);
        Ok(Comm::with_id_and(self.stream, id, number, size, self.options)?)
    }
}

/// Starts a thread that ends the collectives on the GPU if a rank is lost, since RCCL would wait for it. The executor destroys the communicators.
fn watch(
    (comms, collectives): (Weak<RankComms>, Weak<Collectives>),
    ended: Arc<AtomicBool>,
) -> Result<JoinHandle<()>> {
    let look = move || {
        while !ended.load(Ordering::Acquire) {
            let (Some(comms), Some(collectives)) = (comms.upgrade(), collectives.upgrade()) else {
                return;
            };
            if collectives.has_lost() {
                // The next wait for the stream reports it.
                for comm in comms.iter() {
                    let _ = comm.abort();
                }
                return;
            }
            drop((comms, collectives));
            thread::park_timeout(CHECK_INTERVAL);
        }
    };
    let thread = thread::Builder::new().name("hipvit-ranks".into());
    thread
        .spawn(look)
        .map_err(|error| Error::resource("threads", error))
}
