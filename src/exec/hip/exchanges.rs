//! Exchanges of a training step's ranks, which run on a side stream while the GPU computes the next steps.

use std::collections::HashMap;
use std::sync::Arc;

use super::candidate::Submitter;
use super::lower::{CollectiveCall, RankPartCall};
use crate::dtype::to_hip;
use crate::error::{Error, Result};
use crate::hip::{self, Comm, DType, Event, Group, Operand, Reduction, SideStream, Stream};
use crate::ops::exchange::ExchangeKind;

/// Communicators of a rank.
#[derive(Clone, Debug)]
pub(super) struct RankComms {
    /// All ranks.
    pub(super) all: Comm,
    /// Set if groups of ranks divide tensors.
    pub(super) groups: Option<GroupComms>,
    /// Side stream of all communicators.
    pub(super) side: SideStream,
}

/// Communicators of a rank if groups of ranks divide tensors.
#[derive(Clone, Debug)]
pub(super) struct GroupComms {
    /// The ranks of this rank's group.
    pub(super) within: Comm,
    /// The ranks with this rank's number in their group.
    pub(super) across: Comm,
}

impl RankComms {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Comm> {
        let groups = self.groups.iter();
        let groups = groups.flat_map(|groups| [&groups.within, &groups.across]);
        [&self.all].into_iter().chain(groups)
    }

    /// Submits a collective to the side stream.
    fn submit<'a>(&'a self, add: impl FnOnce(&mut Group<'a>) -> hip::Result<()>) -> Result<Event> {
        let mut group = Group::new();
        add(&mut group)?;
        Ok(group.submit_beside(&self.side)?)
    }

    fn sum<'a>(&'a self, comm: &'a Comm, dtype: DType, elements: Operand<'a>) -> Result<Event> {
        self.submit(|group| group.all_reduce_in_place(comm, dtype, Reduction::Sum, elements))
    }
}

/// A bucket on the device, and the ranks that exchange it.
struct Bucket<'a> {
    comms: &'a RankComms,
    /// The ranks that divide the bucket.
    within: &'a Comm,
    /// The ranks that have copies of a part, if the bucket is divided within groups.
    across: Option<&'a Comm>,
    dtype: DType,
    memory: Operand<'a>,
}

impl<'a> Bucket<'a> {
    /// # Errors
    ///
    /// [`Error::Internal`] if there are no communicators for the call's groups.
    fn new(comms: &'a RankComms, call: &CollectiveCall, to: &Submitter<'a>) -> Result<Self> {
        let (within, across) = match &comms.groups {
            _ if call.ranks == comms.all.ranks() => (&comms.all, None),
            Some(groups) if call.ranks == groups.within.ranks() => (&groups.within, Some(&groups.across)),
            _ => {
                let reason = format!("there is no communicator for groups of {} ranks", call.ranks);
                return Err(Error::internal("exchange", reason));
            }
        };
        let bytes = call.elements * call.dtype.size();
        Ok(Self {
            comms,
            within,
            across,
            dtype: to_hip(call.dtype),
            memory: to.regions.from(call.bucket)?.part(0..bytes)?,
        })
    }

    /// Returns the first elements, as many as all ranks have equal parts of, and the others.
    fn equal_parts(&self) -> Result<[Operand<'a>; 2]> {
        let bytes = self.memory.bytes();
        let part = bytes / self.dtype.size() / self.within.ranks() * self.dtype.size();
        let equal = part * self.within.ranks();
        Ok([self.memory.part(0..equal)?, self.memory.part(equal..bytes)?])
    }

    /// Returns the place of this rank's part in elements of equal parts.
    fn own(&self, elements: Operand<'a>) -> Result<Operand<'a>> {
        let (rank, part) = (self.within.rank(), elements.bytes() / self.within.ranks());
        Ok(elements.part(rank * part..(rank + 1) * part)?)
    }

    fn scatter(&self, elements: Operand<'a>) -> Result<Event> {
        let own = self.own(elements)?;
        let comms = self.comms;
        let done = comms
            .submit(|group| group.reduce_scatter(self.within, self.dtype, Reduction::Sum, elements, own))?;
        match self.across {
            Some(across) => comms.sum(across, self.dtype, own),
            None => Ok(done),
        }
    }

    fn gather(&self, elements: Operand<'a>) -> Result<Event> {
        let own = self.own(elements)?;
        self.comms
            .submit(|group| group.all_gather(self.within, self.dtype, own, elements))
    }

    /// Sums the elements, within groups first, so that the links between groups carry a part of each group.
    fn sum(&self) -> Result<Event> {
        if self.across.is_none() {
            return self.comms.sum(self.within, self.dtype, self.memory);
        }
        let [equal, rest] = self.equal_parts()?;
        if rest.bytes() > 0 {
            self.comms.sum(&self.comms.all, self.dtype, rest)?;
        }
        self.scatter(equal)?;
        self.gather(equal)
    }

    /// Returns the starts of the bucket and of this rank's part, both as long as a part. `None` if they are one place.
    fn moved(&self) -> Result<Option<[Operand<'a>; 2]>> {
        let own = self.own(self.memory)?;
        let first = self.memory.part(0..own.bytes())?;
        Ok((self.within.rank() > 0).then_some([first, own]))
    }
}

fn copy(to: &Submitter<'_>, from: Operand<'_>, target: Operand<'_>) -> Result<()> {
    let bytes = from.bytes();
    Ok(to.stream.copy_rows((target, bytes), (from, bytes), bytes, 1)?)
}

/// The exchanges of a stream.
#[derive(Debug)]
pub(super) struct Exchanges {
    comms: Arc<RankComms>,
    /// Ends of the exchanges that the stream has not awaited, by their ids.
    started: HashMap<u32, Event>,
}

impl Exchanges {
    pub(super) fn new(comms: Arc<RankComms>) -> Self {
        Self {
            comms,
            started: HashMap::new(),
        }
    }

    /// Starts an exchange.
    pub(super) fn start(&mut self, call: &CollectiveCall, to: &mut Submitter<'_>) -> Result<()> {
        let bucket = Bucket::new(&self.comms, call, to)?;
        let done = match call.kind {
            ExchangeKind::Sum => bucket.sum()?,
            ExchangeKind::Scatter => bucket.scatter(bucket.memory)?,
            ExchangeKind::Gather => {
                if let Some([first, own]) = bucket.moved()? {
                    copy(to, first, own)?;
                }
                bucket.gather(bucket.memory)?
            }
        };
        if to.clock.is_some() {
            // The time of the exchange, and not that of its submission.
            to.stream.wait(&done)?;
        }
        self.started.insert(call.id, done);
        to.record_call("RCCL", || {
            format!("{} of {} bytes", call.kind, call.elements * call.dtype.size())
        })
    }

    /// Makes the stream wait for the end of an exchange. Moves this rank's part to the start of the bucket, if it is divided.
    pub(super) fn finish(&mut self, call: &CollectiveCall, to: &mut Submitter<'_>) -> Result<()> {
        let Some(done) = self.started.remove(&call.id) else {
            let reason = format!("exchange {} has not started", call.id);
            return Err(Error::internal("exchange", reason));
        };
        to.stream.wait(&done)?;
        if call.kind != ExchangeKind::Scatter {
            return Ok(());
        }
        let bucket = Bucket::new(&self.comms, call, to)?;
        let Some([first, own]) = bucket.moved()? else {
            return Ok(());
        };
        copy(to, own, first)?;
        to.record_call("DtoD copy of a part", || format!("{} bytes", own.bytes()))
    }

    /// Makes the stream wait for all exchanges, also those whose results nothing reads. A capture ends only then.
    pub(super) fn finish_all(&mut self, stream: &Stream) -> Result<()> {
        for (_, done) in self.started.drain() {
            stream.wait(&done)?;
        }
        Ok(())
    }

    /// Forgets exchanges of a run that failed.
    pub(super) fn forget(&mut self) {
        self.started.clear();
    }

    /// Copies this rank's part of a tensor.
    pub(super) fn rank_part(&self, call: &RankPartCall, to: &mut Submitter<'_>) -> Result<()> {
        const SIZE: usize = size_of::<f32>();
        let start = (self.comms.all.rank() % call.ranks * call.part).min(call.elements);
        let len = call.part.min(call.elements - start);
        let target = to.regions.from(call.to)?.part(0..call.part * SIZE)?;
        if len < call.part {
            to.stream.fill(target.part(len * SIZE..call.part * SIZE)?, 0)?;
        }
        if len > 0 {
            let source = to.regions.from(call.from.offset(start * SIZE))?;
            copy(to, source.part(0..len * SIZE)?, target.part(0..len * SIZE)?)?;
        }
        to.record_call("DtoD copy of a part", || format!("{len} elements"))
    }
}
