//! All-reduces over the GPUs of several hosts, within each host first.

use std::{env, fs};

use super::{Comm, CommOptions, Reduction, Rendezvous, UniqueId};
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::operand::Operand;
use crate::stream::Stream;

/// Minimum bytes of a hierarchical all-reduce. Smaller messages use one collective of all ranks, which is cheaper than three. From the
/// model in docs/scaling.md, not measured.
const HIERARCHICAL_FROM: usize = 1 << 20;

/// Communicators of a rank for all-reduces over several hosts, whose links are slower than those between the GPUs of a host.
///
/// An all-reduce has three steps: a reduce-scatter within the host, an all-reduce of each part between the ranks with the same number on
/// their hosts, and an all-gather within the host. With `k` GPUs per host, a link between hosts carries 1/k of the message, and all links
/// are used at the same time. All ranks get the same bits. They may differ from those of one collective of all ranks, because the order of
/// the sums differs.
///
/// One collective of all ranks is used if hosts have different numbers of ranks, if there is one host, or if each host has one rank.
///
/// RCCL decides which ranks share a host: those with the same host name and boot id, or the same `NCCL_HOSTID` if that is set.
///
/// ```no_run
/// # fn main() -> hip_safe::Result<()> {
/// use std::time::Duration;
///
/// use hip_safe::{CommOptions, DType, NodeComm, Reduction, Rendezvous, Runtime, World};
///
/// // Started by torchrun, srun or mpirun.
/// let world = World::from_env()?.expect("a launcher");
/// let stream = Runtime::open()?.device(world.local_rank())?.stream()?;
/// let mut rendezvous = Rendezvous::new(world, Duration::from_secs(300))?;
/// let comm = NodeComm::join(&stream, &mut rendezvous, CommOptions::default())?;
/// let mut values = stream.upload(&vec![1.0f32; 1 << 20])?;
/// comm.all_reduce_in_place(DType::F32, Reduction::Sum, &mut values)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NodeComm {
    all: Comm,
    levels: Option<Levels>,
    from: usize,
}

#[derive(Clone, Debug)]
struct Levels {
    /// Ranks of this host.
    within: Comm,
    /// Ranks of all hosts that have this rank's number on their host.
    across: Comm,
}

impl NodeComm {
    /// Creates the communicators of this process among those of a [`Rendezvous`], each on one stream. Waits for all processes.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`](crate::Error::Rendezvous) if a rank fails before the communicators exist;
    /// [`Error::Provider`](crate::Error::Provider) if RCCL cannot be opened; [`Error::Device`](crate::Error::Device) if RCCL fails.
    pub fn join(stream: &Stream, rendezvous: &mut Rendezvous, options: CommOptions) -> Result<Self> {
        let rank = rendezvous.world().rank();
        let hosts = rendezvous.gather(host().as_bytes())?;
        let all = Comm::join(stream, rendezvous, options)?;
        let levels = match Place::of(&hosts, rank) {
            None => None,
            Some(place) => {
                // The first rank of each host, and of each number, creates the id for the others.
                let (within, across) = (place.local == 0, place.node == 0);
                let id = |first: bool| {
                    if first {
                        UniqueId::new(stream.device()).map(|id| Some(id.to_bytes()))
                    } else {
                        Ok(None)
                    }
                };
                let own = id(within).and_then(|within| Ok([within, id(across)?]));
                // Report an error here to all ranks, which would otherwise wait for the id.
                let message = own.as_ref().map_or_else(
                    |_| Vec::new(),
                    |ids| ids.map(|id| id.unwrap_or([0; 128])).concat(),
                );
                let given = rendezvous.gather(&message)?;
                own?;
                let id = |rank: usize, at: usize| {
                    let bytes = given.get(rank).and_then(|ids| ids.get(at..at + 128));
                    let id = bytes.and_then(|bytes| <[u8; 128]>::try_from(bytes).ok());
                    id.map(UniqueId::from_bytes).ok_or_else(|| {
                        rendezvous.error(&format!(
                            "rank {rank} could not make a unique id; its own output says why"
                        ))
                    })
                };
                let within = id(place.first_of_node, 0)?;
                let across = id(place.first_of_local, 128)?;
                Some(Levels {
                    within: Comm::with_id_and(stream, within, place.local, place.per_node, options)?,
                    across: Comm::with_id_and(stream, across, place.node, place.nodes, options)?,
                })
            }
        };
        Ok(Self {
            all,
            levels,
            from: HIERARCHICAL_FROM,
        })
    }

    /// Sets the minimum bytes of a hierarchical all-reduce, 1 MiB by default. Smaller messages use one collective of all ranks. All ranks
    /// must set the same value.
    #[must_use]
    pub fn hierarchical_from(mut self, bytes: usize) -> Self {
        self.from = bytes;
        self
    }

    /// Returns the communicator of all ranks.
    #[must_use]
    pub fn all(&self) -> &Comm {
        &self.all
    }

    /// Returns the number of hosts and the ranks of each. `None` if all-reduces are not hierarchical.
    #[must_use]
    pub fn nodes(&self) -> Option<(usize, usize)> {
        let levels = self.levels.as_ref()?;
        Some((levels.across.ranks(), levels.within.ranks()))
    }

    /// Reduces all ranks' `source` element by element into every rank's `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if the operands differ in length or do not hold whole elements, or the target is read-only;
    /// [`Error::Device`](crate::Error::Device) if RCCL fails.
    pub fn all_reduce<'a>(
        &'a self,
        dtype: DType,
        reduction: Reduction,
        source: impl Into<Operand<'a>>,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let (source, target) = (source.into(), target.into());
        let bytes = source.bytes();
        // The collective reports a wrong length.
        let fits = bytes == target.bytes() && bytes.is_multiple_of(dtype.size());
        let levels = self.levels.as_ref().filter(|_| fits && bytes >= self.from);
        let Some(Levels { within, across }) = levels else {
            return self.all.all_reduce(dtype, reduction, source, target);
        };
        let part = bytes / dtype.size() / within.ranks() * dtype.size();
        let whole = 0..part * within.ranks();
        let own = target.part(part * within.rank()..part * (within.rank() + 1))?;
        if part > 0 {
            within.reduce_scatter(dtype, reduction, source.part(whole.clone())?, own)?;
            across.all_reduce_in_place(dtype, reduction, own)?;
            within.all_gather(dtype, own, target.part(whole.clone())?)?;
        }
        if whole.end == bytes {
            return Ok(());
        }
        // Fewer elements than a host has ranks.
        let rest = whole.end..bytes;
        self.all
            .all_reduce(dtype, reduction, source.part(rest.clone())?, target.part(rest)?)
    }

    /// Reduces `buffer` in place over all ranks, element by element.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if the buffer does not hold whole elements or is read-only; [`Error::Device`](crate::Error::Device) if RCCL fails.
    pub fn all_reduce_in_place<'a>(
        &'a self,
        dtype: DType,
        reduction: Reduction,
        buffer: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let buffer = buffer.into();
        self.all_reduce(dtype, reduction, buffer, buffer)
    }
}

/// Returns a text that identifies this host.
fn host() -> String {
    if let Ok(id) = env::var("NCCL_HOSTID")
        && !id.is_empty()
    {
        return id;
    }
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let name = read("/proc/sys/kernel/hostname");
    name + &read("/proc/sys/kernel/random/boot_id")
}

/// Place of a rank among hosts with the same number of ranks.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Number of the host, in the order of the first ranks, and number of the rank there.
    node: usize,
    local: usize,
    nodes: usize,
    per_node: usize,
    /// Lowest rank of this host, and lowest rank with this number.
    first_of_node: usize,
    first_of_local: usize,
}

impl Place {
    /// Returns `None` unless there are several hosts, each with the same number of ranks, at least two.
    fn of(hosts: &[Vec<u8>], rank: usize) -> Option<Self> {
        let mut nodes: Vec<(&[u8], Vec<usize>)> = Vec::new();
        for (rank, host) in hosts.iter().enumerate() {
            match nodes.iter_mut().find(|(name, _)| name == host) {
                Some((_, ranks)) => ranks.push(rank),
                None => nodes.push((host, vec![rank])),
            }
        }
        let per_node = nodes.first()?.1.len();
        let equal = nodes.iter().all(|(_, ranks)| ranks.len() == per_node);
        if nodes.len() < 2 || per_node < 2 || !equal {
            return None;
        }
        let at = |ranks: &[usize]| ranks.iter().position(|&other| other == rank);
        let (node, local) = nodes
            .iter()
            .enumerate()
            .find_map(|(node, (_, ranks))| Some((node, at(ranks)?)))?;
        Some(Self {
            node,
            local,
            nodes: nodes.len(),
            per_node,
            first_of_node: nodes[node].1[0],
            // The rank on the first host is node 0 of the communicator.
            first_of_local: nodes[0].1[local],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(hosts: &str, rank: usize) -> Option<Place> {
        let hosts: Vec<Vec<u8>> = hosts.bytes().map(|host| vec![host]).collect();
        Place::of(&hosts, rank)
    }

    #[test]
    fn ranks_are_placed_whatever_their_order() {
        let expected = |node, local, first_of_node, first_of_local| Place {
            node,
            local,
            nodes: 2,
            per_node: 2,
            first_of_node,
            first_of_local,
        };
        assert_eq!(place("aabb", 1), Some(expected(0, 1, 0, 1)));
        assert_eq!(place("aabb", 3), Some(expected(1, 1, 2, 1)));
        assert_eq!(place("baba", 2), Some(expected(0, 1, 0, 2)));
        assert_eq!(place("baba", 3), Some(expected(1, 1, 1, 2)));
    }

    #[test]
    fn one_collective_serves_all_other_placements() {
        for hosts in ["a", "aaa", "ab", "aab", "aabbb"] {
            for rank in 0..hosts.len() {
                assert_eq!(place(hosts, rank), None, "{hosts}");
            }
        }
    }
}
