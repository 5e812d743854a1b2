//! Checks RCCL's collectives and measures their bandwidth by size, as nccl-tests and rccl-tests do.
//!
//!     cargo run --release -p hip-safe --example collectives                      # all GPUs of this process
//!     torchrun --no-python --nproc-per-node 2 target/release/examples/collectives    # a GPU per process
//!     srun -n 8 target/release/examples/collectives --max 256M
//!     HIPVIT_PROVIDER=emu:gfx942x2 cargo run -p hip-safe --example collectives -- --max 64K    # emulated GPUs
//!
//! `algbw` is the size over the time. `busbw` is `algbw` times the amount that an ideal algorithm sends per link. It compares
//! with the link's bandwidth for any number of ranks.

use std::error::Error;
use std::time::{Duration, Instant};

use hip_safe::{
    Comm, CommOptions, DType, Device, DeviceBuffer, Group, NodeComm, Operand, Reduction, Rendezvous, Runtime,
    World,
};

/// Measurement that a run makes.
struct Arguments {
    /// Bytes of the smallest and the largest message.
    min: usize,
    max: usize,
    repetitions: u32,
    timeout: Duration,
}

const USAGE: &str = "usage: collectives [--min BYTES] [--max BYTES] [--repetitions N] [--timeout SECONDS]
BYTES may end in K, M or G";

#[derive(Clone, Copy)]
enum Collective {
    AllReduce,
    /// Within each host first.
    AllReduceByNodes,
    AllGather,
    ReduceScatter,
    Broadcast,
    SendReceive,
}

const ALL: [Collective; 6] = [
    Collective::AllReduce,
    Collective::AllReduceByNodes,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::SendReceive,
];

impl Collective {
    fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllReduceByNodes => "…_by_nodes",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::SendReceive => "send_receive",
        }
    }

    /// Bytes that the busiest link carries, per byte of the message.
    fn traffic(self, ranks: usize) -> f64 {
        let others = (ranks - 1) as f64 / ranks as f64;
        match self {
            Self::AllReduce | Self::AllReduceByNodes => 2.0 * others,
            Self::AllGather | Self::ReduceScatter => others,
            Self::Broadcast | Self::SendReceive => 1.0,
        }
    }

    /// Expected value of element `index` of rank `rank`'s target; sources have [`source`].
    fn expected(self, index: usize, rank: usize, ranks: usize, part: usize) -> f32 {
        let sum = |index| (0..ranks).map(|rank| source(index, rank)).sum();
        match self {
            Self::AllReduce | Self::AllReduceByNodes => sum(index),
            Self::AllGather => source(index % part, index / part),
            Self::ReduceScatter => sum(rank * part + index),
            Self::Broadcast => source(index, 0),
            Self::SendReceive => source(index, (rank + ranks - 1) % ranks),
        }
    }
}

/// Small integers, whose sums are exact.
fn source(index: usize, rank: usize) -> f32 {
    ((index + 3 * rank) % 17) as f32
}

/// One rank's buffers of a size.
struct Buffers {
    from: DeviceBuffer<f32>,
    to: DeviceBuffer<f32>,
}

impl Buffers {
    fn new(comm: &Comm, len: usize) -> hip_safe::Result<Self> {
        let values: Vec<f32> = (0..len).map(|index| source(index, comm.rank())).collect();
        Ok(Self {
            from: comm.stream().upload(&values)?,
            to: comm.stream().zeroed(len)?,
        })
    }
}

/// The communicators of this process.
struct Comms {
    /// Communicators of its ranks.
    ranks: Vec<Comm>,
    /// Communicators of its rank, if each process has one and they are on several hosts.
    nodes: Option<NodeComm>,
}

/// Submits one collective of `len` elements for the ranks of this process.
fn submit(what: Collective, comms: &Comms, buffers: &mut [Buffers], len: usize) -> hip_safe::Result<()> {
    if let (Collective::AllReduceByNodes, Some(nodes), [Buffers { from, to }]) =
        (what, &comms.nodes, &mut *buffers)
    {
        return nodes.all_reduce(DType::F32, Reduction::Sum, &*from, to);
    }
    let mut group = Group::new();
    for (comm, Buffers { from, to }) in comms.ranks.iter().zip(buffers) {
        let (rank, ranks, dtype) = (comm.rank(), comm.ranks(), DType::F32);
        let part = 0..len / ranks;
        match what {
            Collective::AllReduce | Collective::AllReduceByNodes => {
                group.all_reduce(comm, dtype, Reduction::Sum, &*from, to)?;
            }
            Collective::AllGather => {
                let own: Operand<'_> = from.reading().part(bytes(&part))?;
                group.all_gather(
                    comm,
                    dtype,
                    own,
                    to.writing().part(bytes(&(0..part.end * ranks)))?,
                )?;
            }
            Collective::ReduceScatter => {
                let all: Operand<'_> = from.reading().part(bytes(&(0..part.end * ranks)))?;
                group.reduce_scatter(comm, dtype, Reduction::Sum, all, to.writing().part(bytes(&part))?)?;
            }
            // In place at every rank; rank 0's own values stay.
            Collective::Broadcast => group.broadcast(comm, dtype, 0, from)?,
            Collective::SendReceive => {
                group.send(comm, dtype, (rank + 1) % ranks, &*from)?;
                group.receive(comm, dtype, (rank + ranks - 1) % ranks, to)?;
            }
        }
    }
    group.submit()
}

fn bytes(elements: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    4 * elements.start..4 * elements.end
}

/// The elements of this process's ranks that are wrong.
fn wrong(what: Collective, comms: &[Comm], buffers: &[Buffers], len: usize) -> hip_safe::Result<usize> {
    let mut wrong = 0;
    for (comm, buffers) in comms.iter().zip(buffers) {
        let (rank, ranks) = (comm.rank(), comm.ranks());
        let part = len / ranks;
        let (target, count) = match what {
            Collective::AllReduce | Collective::AllReduceByNodes | Collective::SendReceive => {
                (&buffers.to, len)
            }
            Collective::AllGather => (&buffers.to, part * ranks),
            Collective::ReduceScatter => (&buffers.to, part),
            Collective::Broadcast => (&buffers.from, len),
        };
        let values = target.read()?;
        let differs = |&index: &usize| values[index] != what.expected(index, rank, ranks, part);
        wrong += (0..count).filter(differs).count();
    }
    Ok(wrong)
}

fn size(text: &str) -> Option<usize> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, text.as_bytes()[number.len()]),
        None => (text, b' '),
    };
    let shift = match unit {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    };
    number.parse::<usize>().ok()?.checked_shl(shift)
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        min: 1 << 10,
        max: 64 << 20,
        repetitions: 20,
        timeout: Duration::from_secs(300),
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given
            .next()
            .ok_or_else(|| format!("{name} has no value\n{USAGE}"))?;
        let bad = || format!("{name} {value}: not a positive number\n{USAGE}");
        let number = size(&value).filter(|&number| number > 0).ok_or_else(bad)?;
        match &*name {
            "--min" => arguments.min = number,
            "--max" => arguments.max = number,
            "--repetitions" => arguments.repetitions = u32::try_from(number).map_err(|_| bad())?,
            "--timeout" => arguments.timeout = Duration::from_secs(number as u64),
            _ => return Err(format!("unknown option {name}\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let options = CommOptions::with_timeout(arguments.timeout);
    let devices = Runtime::open()?.devices()?;
    let world = World::from_env()?;
    let mut rendezvous = world
        .map(|world| Rendezvous::new(world, arguments.timeout))
        .transpose()?;
    let comms = match &mut rendezvous {
        None => {
            let streams: Result<Vec<_>, _> = devices.iter().map(Device::stream).collect();
            Comms {
                ranks: Comm::all_with(&streams?, options)?,
                nodes: None,
            }
        }
        Some(rendezvous) => {
            // More processes than GPUs are possible where each process has emulated GPUs of its own.
            let device = &devices[rendezvous.world().local_rank() % devices.len()];
            let nodes = NodeComm::join(&device.stream()?, rendezvous, options)?.hierarchical_from(0);
            Comms {
                ranks: vec![nodes.all().clone()],
                nodes: nodes.nodes().is_some().then_some(nodes),
            }
        }
    };
    let ranks = comms.ranks.first().map_or(0, Comm::ranks);
    let is_first = comms.ranks.first().is_some_and(|comm| comm.rank() == 0);
    if is_first {
        println!(
            "# {ranks} ranks, rank 0 on {}",
            comms.ranks[0].stream().device().name()
        );
        if let Some((nodes, each)) = comms.nodes.as_ref().and_then(NodeComm::nodes) {
            println!("# {nodes} hosts with {each} ranks each");
        }
        println!(
            "# {:<14} {:>12} {:>12} {:>10} {:>10} {:>8}",
            "collective", "bytes", "time (us)", "algbw GB/s", "busbw GB/s", "#wrong"
        );
    }
    let mut all_wrong = 0;
    for what in ALL {
        // Not every library lets a rank send to itself.
        if ranks == 1 && matches!(what, Collective::SendReceive) {
            continue;
        }
        if comms.nodes.is_none() && matches!(what, Collective::AllReduceByNodes) {
            continue;
        }
        let mut bytes = arguments.min;
        while bytes <= arguments.max {
            let len = (bytes / 4).max(ranks);
            let mut buffers = comms
                .ranks
                .iter()
                .map(|comm| Buffers::new(comm, len))
                .collect::<Result<Vec<_>, _>>()?;
            submit(what, &comms, &mut buffers, len)?;
            let wrong = wrong(what, &comms.ranks, &buffers, len)?;
            let begun = Instant::now();
            for _ in 0..arguments.repetitions {
                submit(what, &comms, &mut buffers, len)?;
            }
            for comm in &comms.ranks {
                comm.stream().synchronize()?;
            }
            let seconds = begun.elapsed().as_secs_f64() / f64::from(arguments.repetitions);
            let gathered = match &mut rendezvous {
                Some(rendezvous) => rendezvous.gather(&(wrong as u64).to_le_bytes())?,
                None => vec![(wrong as u64).to_le_bytes().to_vec()],
            };
            let wrong: u64 = gathered
                .iter()
                .filter_map(|part| Some(u64::from_le_bytes(part[..].try_into().ok()?)))
                .sum();
            all_wrong += wrong;
            if is_first {
                let bandwidth = 4.0 * len as f64 / seconds / 1e9;
                println!(
                    "  {:<14} {:>12} {:>12.1} {:>10.3} {:>10.3} {:>8}",
                    what.name(),
                    4 * len,
                    seconds * 1e6,
                    bandwidth,
                    bandwidth * what.traffic(ranks),
                    wrong
                );
            }
            bytes *= 4;
        }
    }
    match all_wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} elements are wrong").into()),
    }
}
