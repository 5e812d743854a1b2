//! Groups of collectives that are submitted together.

use std::sync::Arc;

use hipvit_sys::Rccl;
use hipvit_sys::rccl::{ncclDataType_t, ncclRedOp_t, ncclResult_t};

use super::communicator::Comm;
use super::side_stream::SideStream;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::libraries;
use crate::memory::operand::Operand;
use crate::status::{call, check};
use crate::stream::Resource;

/// Operation that combines the ranks' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sum of the values.
    Sum,
    /// Product of the values.
    Product,
    /// Largest value.
    Max,
    /// Smallest value.
    Min,
    /// Mean of the values.
    Mean,
}

impl Reduction {
    fn raw(self) -> ncclRedOp_t {
        match self {
            Self::Sum => ncclRedOp_t::ncclSum,
            Self::Product => ncclRedOp_t::ncclProd,
            Self::Max => ncclRedOp_t::ncclMax,
            Self::Min => ncclRedOp_t::ncclMin,
            Self::Mean => ncclRedOp_t::ncclAvg,
        }
    }
}

/// Collectives, sends and receives of one or several ranks that are submitted together. Nothing runs before [`submit`](Group::submit), and
/// the buffers are borrowed until then.
#[must_use = "nothing runs before `submit`"]
#[derive(Debug, Default)]
pub struct Group<'a> {
    calls: Vec<Call<'a>>,
}

#[derive(Debug)]
struct Call<'a> {
    comm: &'a Comm,
    operation: Operation,
    /// Number of elements of one rank's part.
    count: usize,
    dtype: DType,
    /// Operand that is read. The target itself for an operation in place.
    source: Operand<'a>,
    target: Operand<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    AllReduce(Reduction),
    AllGather,
    ReduceScatter(Reduction),
    Broadcast(i32),
    Send(i32),
    Receive(i32),
}

impl<'a> Group<'a> {
    /// Creates an empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a [`Comm::all_reduce`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the operands differ in length or do not hold whole elements, or the target is read-only.
    pub fn all_reduce(
        &mut self,
        comm: &'a Comm,
        dtype: DType,
        reduction: Reduction,
        source: impl Into<Operand<'a>>,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        self.add(
            comm,
            Operation::AllReduce(reduction),
            dtype,
            source.into(),
            target.into(),
            [1, 1],
        )
    }

    /// Adds a [`Comm::all_reduce_in_place`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the buffer does not hold whole elements or is read-only.
    pub fn all_reduce_in_place(
        &mut self,
        comm: &'a Comm,
        dtype: DType,
        reduction: Reduction,
        buffer: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let buffer = buffer.into();
        self.add(
            comm,
            Operation::AllReduce(reduction),
            dtype,
            buffer,
            buffer,
            [1, 1],
        )
    }

    /// Adds a [`Comm::all_gather`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the lengths do not fit, the operands do not hold whole elements, or the target is read-only.
    pub fn all_gather(
        &mut self,
        comm: &'a Comm,
        dtype: DType,
        source: impl Into<Operand<'a>>,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let parts = [1, comm.ranks()];
        self.add(
            comm,
            Operation::AllGather,
            dtype,
            source.into(),
            target.into(),
            parts,
        )
    }

    /// Adds a [`Comm::reduce_scatter`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the lengths do not fit, the operands do not hold whole elements, or the target is read-only.
    pub fn reduce_scatter(
        &mut self,
        comm: &'a Comm,
        dtype: DType,
        reduction: Reduction,
        source: impl Into<Operand<'a>>,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let parts = [comm.ranks(), 1];
        self.add(
            comm,
            Operation::ReduceScatter(reduction),
            dtype,
            source.into(),
            target.into(),
            parts,
        )
    }

    /// Adds a [`Comm::broadcast`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist, or the buffer does not hold whole elements or is read-only.
    pub fn broadcast(
        &mut self,
        comm: &'a Comm,
        dtype: DType,
        root: usize,
        buffer: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let (buffer, root) = (buffer.into(), rank(comm, root)?);
        self.add(comm, Operation::Broadcast(root), dtype, buffer, buffer, [1, 1])
    }

    /// Adds a [`Comm::send`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist, or the source does not hold whole elements.
    pub fn send(
        &mut self,
        comm: &'a Comm,
        dtype: DType,
        peer: usize,
        source: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let (source, peer) = (source.into(), rank(comm, peer)?);
        self.add(comm, Operation::Send(peer), dtype, source, source, [1, 1])
    }

    /// Adds a [`Comm::receive`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist, or the target does not hold whole elements or is read-only.
    pub fn receive(
        &mut self,
        comm: &'a Comm,
        dtype: DType,
        peer: usize,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let (target, peer) = (target.into(), rank(comm, peer)?);
        self.add(comm, Operation::Receive(peer), dtype, target, target, [1, 1])
    }

    /// Adds a call. `parts` are the numbers of ranks' parts in source and target.
    fn add(
        &mut self,
        comm: &'a Comm,
        operation: Operation,
        dtype: DType,
        source: Operand<'a>,
        target: Operand<'a>,
        parts: [usize; 2],
    ) -> Result<()> {
        let part = dtype.size() * parts[0];
        if !source.bytes().is_multiple_of(part) {
            let reason = format!(
                "{} bytes are not {} equal parts of {dtype}",
                source.bytes(),
                parts[0]
            );
            return Err(Error::argument("source", reason));
        }
        let count = source.bytes() / part;
        let wanted = count * dtype.size() * parts[1];
        if target.bytes() != wanted {
            let reason = format!("has {} bytes where {wanted} are needed", target.bytes());
            return Err(Error::argument("target", reason));
        }
        for (what, operand) in [("source", &source), ("target", &target)] {
            if !operand.address().is_aligned_to(dtype.size()) {
                return Err(Error::argument(
                    what,
                    format!("is not aligned to elements of {dtype}"),
                ));
            }
        }
        target.expect("target", 0, !matches!(operation, Operation::Send(_)))?;
        self.calls.push(Call {
            comm,
            operation,
            count,
            dtype,
            source,
            target,
        });
        Ok(())
    }

    /// Submits all calls, each on its rank's stream.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand belongs to another stream than its rank, or if a communicator was aborted; nothing is submitted
    /// then. [`Error::Device`] if RCCL fails.
    pub fn submit(self) -> Result<()> {
        self.submit_to(None)
    }

    /// Submits all calls to a side stream of their ranks' stream, after the work that was submitted to that stream before. Returns the event
    /// at which they are complete.
    ///
    /// Until the ranks' stream has [waited](crate::Stream::wait) for the event, the contents of the targets are undefined, and its work must not
    /// write the sources. If the stream is being captured, it must wait before the capture ends.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a rank is not on the side stream's main stream, or has used another side stream; the errors of
    /// [`Group::submit`].
    pub fn submit_beside(self, side: &SideStream) -> Result<Event> {
        self.submit_to(Some(side))?;
        side.side().mark()
    }

    /// Submits all calls to the ranks' streams, or to a side stream of them.
    fn submit_to(self, side: Option<&SideStream>) -> Result<()> {
        let Some(first) = self.calls.first() else {
            return Ok(());
        };
        let device = first.comm.stream().device();
        let table = libraries::rccl(device)?;
        for call in &self.calls {
            let stream = call.comm.stream();
            if !stream.device().runtime().is(device.runtime()) {
                return Err(Error::argument("group", "its ranks belong to several runtimes"));
            }
            if let Some(side) = side {
                call.comm.inner.use_side(side)?;
            }
            for operand in [&call.source, &call.target] {
                operand.admit(stream)?;
                side.map_or(Ok(()), |side| side.admit(operand.block()))?;
            }
        }
        device.enter()?;
        self.calls.iter().try_for_each(|call| call.comm.inner.usable())?;
        // Lock in the order of addresses, so that threads do not deadlock.
        let mut comms: Vec<_> = self.calls.iter().map(|call| &call.comm.inner).collect();
        comms.sort_by_key(|comm| Arc::as_ptr(comm).addr());
        comms.dedup_by_key(|comm| Arc::as_ptr(comm).addr());
        let _alone: Vec<_> = comms.iter().map(|comm| comm.calls.write()).collect();
        comms.iter().try_for_each(|comm| comm.usable())?;
        if let Some(side) = side {
            side.fork()?;
        }

        let grouped = self.calls.len() > 1;
        if grouped {
            // SAFETY: no arguments. The group is ended below in any case.
            unsafe { call!(device, table.ncclGroupStart()) }?;
        }
        let mut result = Ok(());
        for call in &self.calls {
            if result.is_ok() {
                result = call.run(table, side);
            }
        }
        if grouped {
            // SAFETY: no arguments.
            let ended = unsafe { call!(device, table.ncclGroupEnd()) };
            result = result.and(ended);
        }
        // Also after an error, since a part may run. Only now, because the work is queued when the group ends.
        for call in &self.calls {
            let operands =
                [&call.source, &call.target].map(|operand| -> Arc<dyn Resource> { operand.block().clone() });
            let comm: Arc<dyn Resource> = call.comm.inner.clone();
            call.comm.stream().note(operands.into_iter().chain([comm]));
        }
        result
    }
}

impl Call<'_> {
    fn run(&self, table: &Rccl, side: Option<&SideStream>) -> Result<()> {
        let device = self.comm.stream().device();
        device.select()?;
        let (from, to) = (self.source.pointer().cast_const(), self.target.pointer());
        let (count, dtype) = (self.count, data_type(self.dtype)?);
        let stream = side.map_or(self.comm.stream(), SideStream::side);
        let (comm, stream) = (self.comm.inner.raw, stream.raw());
        // SAFETY: the handles are alive. The operands have as many elements as each call accesses, which `add` checked, and the stream
        // orders them; their blocks know a side stream. The group borrows them until all calls are submitted.
        let (name, returned): (_, Result<ncclResult_t, _>) = unsafe {
            match self.operation {
                Operation::AllReduce(reduction) => (
                    "ncclAllReduce",
                    table.ncclAllReduce(from, to, count, dtype, reduction.raw(), comm, stream),
                ),
                Operation::AllGather => (
                    "ncclAllGather",
                    table.ncclAllGather(from, to, count, dtype, comm, stream),
                ),
                Operation::ReduceScatter(reduction) => (
                    "ncclReduceScatter",
                    table.ncclReduceScatter(from, to, count, dtype, reduction.raw(), comm, stream),
                ),
                Operation::Broadcast(root) => (
                    "ncclBroadcast",
                    table.ncclBroadcast(from, to, count, dtype, root, comm, stream),
                ),
                Operation::Send(peer) => ("ncclSend", table.ncclSend(from, count, dtype, peer, comm, stream)),
                Operation::Receive(peer) => {
                    ("ncclRecv", table.ncclRecv(to, count, dtype, peer, comm, stream))
                }
            }
        };
        check(device.name(), name, returned).map_err(|error| self.comm.inner.explained(error))
    }
}

/// Collectives of one rank that are submitted alone.
impl Comm {
    /// Reduces all ranks' `source` element by element into every rank's `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the operands differ in length or do not hold whole elements, the target is read-only, or an operand belongs
    /// to a different stream; [`Error::Device`] if RCCL fails.
    pub fn all_reduce<'a>(
        &'a self,
        dtype: DType,
        reduction: Reduction,
        source: impl Into<Operand<'a>>,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let mut group = Group::new();
        group.all_reduce(self, dtype, reduction, source, target)?;
        group.submit()
    }

    /// Reduces `buffer` in place over all ranks, element by element.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the buffer does not hold whole elements, is read-only or belongs to a different stream;
    /// [`Error::Device`] if RCCL fails.
    pub fn all_reduce_in_place<'a>(
        &'a self,
        dtype: DType,
        reduction: Reduction,
        buffer: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let mut group = Group::new();
        group.all_reduce_in_place(self, dtype, reduction, buffer)?;
        group.submit()
    }

    /// Concatenates the `source` of all ranks into every rank's `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the lengths do not fit, the target is read-only, or an operand belongs to a different stream;
    /// [`Error::Device`] if RCCL fails.
    pub fn all_gather<'a>(
        &'a self,
        dtype: DType,
        source: impl Into<Operand<'a>>,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let mut group = Group::new();
        group.all_gather(self, dtype, source, target)?;
        group.submit()
    }

    /// Reduces all ranks' `source`, and writes part `n` of the result to rank `n`'s `target`. The source is as long as all targets
    /// together.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the lengths do not fit, the target is read-only, or an operand belongs to a different stream;
    /// [`Error::Device`] if RCCL fails.
    pub fn reduce_scatter<'a>(
        &'a self,
        dtype: DType,
        reduction: Reduction,
        source: impl Into<Operand<'a>>,
        target: impl Into<Operand<'a>>,
    ) -> Result<()> {
        let mut group = Group::new();
        group.reduce_scatter(self, dtype, reduction, source, target)?;
        group.submit()
    }

    /// Copies the `buffer` of rank `root` to all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist, or the buffer is read-only or belongs to a different stream; [`Error::Device`] if
    /// RCCL fails.
    pub fn broadcast<'a>(&'a self, dtype: DType, root: usize, buffer: impl Into<Operand<'a>>) -> Result<()> {
        let mut group = Group::new();
        group.broadcast(self, dtype, root, buffer)?;
        group.submit()
    }

    /// Sends `source` to rank `peer`, which must [receive](Comm::receive) the same length. Ranks that send to each other must do both in a
    /// [`Group`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist, or the source belongs to a different stream; [`Error::Device`] if RCCL fails.
    pub fn send<'a>(&'a self, dtype: DType, peer: usize, source: impl Into<Operand<'a>>) -> Result<()> {
        let mut group = Group::new();
        group.send(self, dtype, peer, source)?;
        group.submit()
    }

    /// Receives into `target` the data that rank `peer` [sends](Comm::send).
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist, or the target is read-only or belongs to a different stream; [`Error::Device`] if
    /// RCCL fails.
    pub fn receive<'a>(&'a self, dtype: DType, peer: usize, target: impl Into<Operand<'a>>) -> Result<()> {
        let mut group = Group::new();
        group.receive(self, dtype, peer, target)?;
        group.submit()
    }
}

fn rank(comm: &Comm, rank: usize) -> Result<i32> {
    match i32::try_from(rank) {
        Ok(number) if rank < comm.ranks() => Ok(number),
        _ => Err(Error::argument("rank", format!("{rank} of {}", comm.ranks()))),
    }
}

fn data_type(dtype: DType) -> Result<ncclDataType_t> {
    Ok(match dtype {
        DType::U8 => ncclDataType_t::ncclUint8,
        DType::I8 => ncclDataType_t::ncclInt8,
        DType::F32 => ncclDataType_t::ncclFloat32,
        DType::F16 => ncclDataType_t::ncclFloat16,
        DType::BF16 => ncclDataType_t::ncclBfloat16,
        DType::I32 => ncclDataType_t::ncclInt32,
        DType::F8E4M3 | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz => {
            return Err(Error::argument("dtype", format!("RCCL is not used for {dtype}")));
        }
    })
}
