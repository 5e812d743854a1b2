//! One call of a collective, a send or a receive: who takes part, which bytes go to whom, and what becomes of them.

use std::fmt;
use std::ops::Range;

use gcnrun::Memory;
use hipvit_sys::rccl::{ncclDataType_t, ncclRedOp_t};
use serde::{Deserialize, Serialize};

use super::reduce::{self, Format};
use crate::compute;
use crate::faults::Failure;

/// Description of a call, which has to agree for all ranks that take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) kind: Kind,
    /// Elements, counted as RCCL's function counts them: of one rank's part.
    pub(super) count: u64,
    /// RCCL's number of the element type.
    pub(super) datatype: u32,
    /// RCCL's number of the reduction.
    pub(super) op: Option<u32>,
    pub(super) root: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllToAll,
    Send,
    Receive,
}

impl Kind {
    /// RCCL's function.
    pub(super) fn function(self) -> &'static str {
        match self {
            Self::AllReduce => "ncclAllReduce",
            Self::AllGather => "ncclAllGather",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::Broadcast => "ncclBroadcast",
            Self::Reduce => "ncclReduce",
            Self::Gather => "ncclGather",
            Self::Scatter => "ncclScatter",
            Self::AllToAll => "ncclAllToAll",
            Self::Send => "ncclSend",
            Self::Receive => "ncclRecv",
        }
    }
}

impl Call {
    /// True if the other side's call fits this one: the same for a collective, the counterpart for a send or receive.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self.kind, other.kind) {
            (Kind::Send, Kind::Receive) | (Kind::Receive, Kind::Send) => {
                (self.count, self.datatype) == (other.count, other.datatype)
            }
            _ => self == other,
        }
    }
}

/// Shows the call as the source of a program: `ncclAllReduce(4096 × float32, sum)`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let datatype = datatype_name(ncclDataType_t(self.datatype));
        write!(f, "{}({} × {datatype}", self.kind.function(), self.count)?;
        if let Some(op) = self.op {
            write!(f, ", {}", op_name(ncclRedOp_t(op)))?;
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        f.write_str(")")
    }
}

fn datatype_name(datatype: ncclDataType_t) -> &'static str {
    match datatype {
        ncclDataType_t::ncclInt8 => "int8",
        ncclDataType_t::ncclUint8 => "uint8",
        ncclDataType_t::ncclInt32 => "int32",
        ncclDataType_t::ncclUint32 => "uint32",
        ncclDataType_t::ncclInt64 => "int64",
        ncclDataType_t::ncclUint64 => "uint64",
        ncclDataType_t::ncclFloat16 => "float16",
        ncclDataType_t::ncclFloat32 => "float32",
        ncclDataType_t::ncclFloat64 => "float64",
        ncclDataType_t::ncclBfloat16 => "bfloat16",
        ncclDataType_t::ncclFloat8e4m3 => "float8e4m3",
        ncclDataType_t::ncclFloat8e5m2 => "float8e5m2",
        _ => "unknown type",
    }
}

fn op_name(op: ncclRedOp_t) -> &'static str {
    match op {
        ncclRedOp_t::ncclSum => "sum",
        ncclRedOp_t::ncclProd => "product",
        ncclRedOp_t::ncclMax => "max",
        ncclRedOp_t::ncclMin => "min",
        ncclRedOp_t::ncclAvg => "average",
        _ => "unknown operation",
    }
}

/// A call with its rank's memory.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) call: Call,
    pub(super) format: Format,
    /// The addresses that are read and written; 0 where a rank has none.
    pub(super) from: u64,
    pub(super) to: u64,
    /// The other rank of a send or receive.
    pub(super) peer: Option<usize>,
}

impl Operation {
    /// Bytes of one rank's part.
    fn part(&self) -> usize {
        self.call.count as usize * self.format.size()
    }

    /// The ranks that take part, this one included.
    pub(super) fn participants(&self, ranks: usize) -> Range<usize> {
        match self.peer {
            Some(peer) => peer..peer + 1,
            None => 0..ranks,
        }
    }

    /// The range of the source that rank `rank` of `ranks` sends to rank `to`.
    fn outgoing(&self, rank: usize, to: usize) -> Range<usize> {
        let part = self.part();
        let root = self.call.root;
        match self.call.kind {
            Kind::AllReduce | Kind::AllGather | Kind::Send => 0..part,
            Kind::ReduceScatter | Kind::AllToAll => to * part..(to + 1) * part,
            Kind::Scatter if root == Some(rank) => to * part..(to + 1) * part,
            Kind::Broadcast if root == Some(rank) => 0..part,
            Kind::Reduce | Kind::Gather if root == Some(to) => 0..part,
            _ => 0..0,
        }
    }

    /// Reads the data that rank `rank` sends to each participant. All of it is read before anything is written, so that source
    /// and target may be the same memory.
    pub(super) fn read(&self, memory: &Memory, rank: usize, ranks: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let parts = self.participants(ranks).map(|to| {
            let range = self.outgoing(rank, to);
            let (address, len) = (self.from + range.start as u64, range.len());
            if self.call.op.is_some() {
                return Ok(compute::read(memory, address, len)?);
            }
            // What is only moved may have unwritten bytes, as padding has.
            let mut bytes = vec![0; len];
            if len > 0 {
                memory.read(address, &mut bytes)?;
            }
            Ok(bytes)
        });
        parts.collect()
    }

    /// Writes the results, from what each participant has sent.
    pub(super) fn write(&self, memory: &Memory, rank: usize, received: &[&[u8]]) -> Result<(), Failure> {
        let is_root = self.call.root == Some(rank);
        let result = match self.call.kind {
            Kind::AllReduce | Kind::ReduceScatter => self.reduce(received),
            Kind::Reduce if is_root => self.reduce(received),
            Kind::AllGather | Kind::AllToAll | Kind::Receive => received.concat(),
            // The ranks that send nothing add nothing.
            Kind::Broadcast | Kind::Scatter => received.concat(),
            Kind::Gather if is_root => received.concat(),
            Kind::Reduce | Kind::Gather | Kind::Send => return Ok(()),
        };
        Ok(compute::write(memory, self.to, &result)?)
    }

    fn reduce(&self, received: &[&[u8]]) -> Vec<u8> {
        match self.call.op {
            Some(op) => reduce::reduce(self.format, ncclRedOp_t(op), received),
            None => Vec::new(),
        }
    }
}
