//! RCCL: communication between GPUs, of one process or several.

mod group;

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hipvit_sys::Rccl;
use hipvit_sys::rccl::{ncclComm_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};

use parking_lot::{RwLock, RwLockReadGuard};

pub use self::group::Group;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::operand::Operand;
use crate::status::{call, check, missing};
use crate::stream::{Resource, Stream};

/// One rank of a communicator, on one stream of its GPU: RCCL, or NCCL where the provider is one for CUDA. Cheap to clone.
///
/// Either one process makes all ranks ([`Comm::all`]), or each process or thread makes its own, from an id that they share
/// ([`Comm::with_id`]). Every rank has to submit the same collectives in the same order; a collective runs once all
/// ranks have submitted it. A thread that has several ranks submits those of one collective in a [`Group`].
///
/// Buffers belong to the rank's stream, as for a launch: the collective is one more piece of work in its order.
///
/// ```no_run
/// # fn main() -> hip_safe::Result<()> {
/// use hip_safe::{Comm, DType, Group, Reduction, Runtime};
///
/// let devices = Runtime::open()?.devices()?;
/// let streams: Vec<_> = devices.iter().map(|device| device.stream()).collect::<Result<_, _>>()?;
/// let comms = Comm::all(&streams)?;
/// let mut buffers: Vec<_> = streams.iter().map(|stream| stream.upload(&[1.0f32; 8])).collect::<Result<_, _>>()?;
/// let mut group = Group::new();
/// for (comm, buffer) in comms.iter().zip(&mut buffers) {
///     group.all_reduce_in_place(comm, DType::F32, Reduction::Sum, buffer)?;
/// }
/// group.submit()?;
/// assert_eq!(buffers[0].read()?, [devices.len() as f32; 8]);
/// # Ok(())
/// # }
/// ```
///
/// Dropping the last clone waits for the stream, and ends the rank. If another rank is lost, waiting never ends: see
/// [`Comm::abort`].
#[derive(Clone)]
pub struct Comm {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    stream: Stream,
    raw: ncclComm_t,
    rank: usize,
    ranks: usize,
    aborted: AtomicBool,
    /// Written while RCCL is called, which takes one call at a time; read while a graph is launched that uses the rank.
    calls: RwLock<()>,
}

// SAFETY: RCCL's functions take the handle from any thread, one at a time, which `calls` sees to; it ends once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// What ranks of several processes find each other by. The process that makes it passes its bytes on to the others, by
/// whatever way they have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// A new id. For one communicator.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if RCCL cannot be opened; what it says otherwise.
    pub fn new(device: &Device) -> Result<Self> {
        let table = table(device)?;
        device.enter()?;
        let mut id = ncclUniqueId::default();
        // SAFETY: the call writes one id.
        unsafe { call!(device, table.ncclGetUniqueId(&mut id)) }?;
        Ok(Self(id.internal.map(|byte| byte as u8)))
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 128] {
        self.0
    }

    /// The id of these bytes, which another process made.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 128]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

/// How the ranks' values become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Their mean.
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

pub(crate) fn table(device: &Device) -> Result<&Rccl> {
    device
        .runtime()
        .provider()
        .rccl()
        .map_err(|error| missing(&error))
}

impl Comm {
    /// All ranks of a communicator, for a process that has every GPU of it: rank `n` on `streams[n]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if two streams are of one GPU, or the GPUs of several runtimes; [`Error::Provider`] if RCCL
    /// cannot be opened; what it says otherwise.
    pub fn all(streams: &[Stream]) -> Result<Vec<Self>> {
        let wrong = |reason: &str| Err(Error::argument("streams", reason));
        let Some(first) = streams.first() else {
            return wrong("a communicator has at least one rank");
        };
        for (index, stream) in streams.iter().enumerate() {
            if !stream.device().runtime().is(first.device().runtime()) {
                return wrong("their GPUs are of several runtimes");
            }
            if streams[..index]
                .iter()
                .any(|other| other.device() == stream.device())
            {
                return wrong("two of them are of the same GPU");
            }
        }
        let device = first.device();
        let table = table(device)?;
        device.enter()?;
        let ordinals: Vec<i32> = streams
            .iter()
            .map(|stream| stream.device().ordinal() as i32)
            .collect();
        let mut raw = vec![ptr::null_mut(); streams.len()];
        // SAFETY: the call reads as many numbers, and writes as many handles, as it is told.
        unsafe {
            call!(
                device,
                table.ncclCommInitAll(raw.as_mut_ptr(), raw.len() as i32, ordinals.as_ptr())
            )
        }?;
        let ranks = streams.iter().zip(raw).enumerate();
        Ok(ranks
            .map(|(rank, (stream, raw))| Self::of(stream, raw, rank, streams.len()))
            .collect())
    }

    /// Rank number `rank` of `ranks`, on `stream`. Waits until all ranks have called it with the same id, each in a
    /// process or thread of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no such rank; [`Error::Provider`] if RCCL cannot be opened; what it says otherwise.
    pub fn with_id(stream: &Stream, id: UniqueId, rank: usize, ranks: usize) -> Result<Self> {
        let (Ok(number), Ok(count), true) = (i32::try_from(rank), i32::try_from(ranks), rank < ranks) else {
            return Err(Error::argument("rank", format!("{rank} of {ranks}")));
        };
        let device = stream.device();
        let table = table(device)?;
        device.enter()?;
        let id = ncclUniqueId {
            internal: id.0.map(|byte| byte as std::ffi::c_char),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle.
        unsafe { call!(device, table.ncclCommInitRank(&mut raw, count, id, number)) }?;
        Ok(Self::of(stream, raw, rank, ranks))
    }

    fn of(stream: &Stream, raw: ncclComm_t, rank: usize, ranks: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                stream: stream.clone(),
                raw,
                rank,
                ranks,
                aborted: AtomicBool::new(false),
                calls: RwLock::new(()),
            }),
        }
    }

    /// The stream that it submits to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// Its number, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks the communicator has.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.inner.ranks
    }

    /// Every rank's `target` becomes the reduction of all ranks' `source`, element by element.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the operands differ in length or do not hold whole elements, the target is read-only, or
    /// one is another stream's; what RCCL says.
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

    /// As [`Comm::all_reduce`], from and to the same memory.
    ///
    /// # Errors
    ///
    /// As for [`Comm::all_reduce`].
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

    /// Every rank's `target`, which is as long as all sources together, becomes the ranks' sources one after the other.
    ///
    /// # Errors
    ///
    /// As for [`Comm::all_reduce`], but for the lengths.
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

    /// Rank `n`'s `target` becomes part `n` of the reduction of all ranks' `source`, which is as long as all targets
    /// together.
    ///
    /// # Errors
    ///
    /// As for [`Comm::all_reduce`], but for the lengths.
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

    /// Every rank's `buffer` becomes that of rank `root`.
    ///
    /// # Errors
    ///
    /// As for [`Comm::all_reduce`]; [`Error::Argument`] if there is no such rank.
    pub fn broadcast<'a>(&'a self, dtype: DType, root: usize, buffer: impl Into<Operand<'a>>) -> Result<()> {
        let mut group = Group::new();
        group.broadcast(self, dtype, root, buffer)?;
        group.submit()
    }

    /// Sends `source` to the rank `peer`, which has to [receive](Comm::receive) as much. Ranks that send to each other do
    /// both in a [`Group`].
    ///
    /// # Errors
    ///
    /// As for [`Comm::broadcast`].
    pub fn send<'a>(&'a self, dtype: DType, peer: usize, source: impl Into<Operand<'a>>) -> Result<()> {
        let mut group = Group::new();
        group.send(self, dtype, peer, source)?;
        group.submit()
    }

    /// Receives into `target` what the rank `peer` [sends](Comm::send).
    ///
    /// # Errors
    ///
    /// As for [`Comm::broadcast`].
    pub fn receive<'a>(&'a self, dtype: DType, peer: usize, target: impl Into<Operand<'a>>) -> Result<()> {
        let mut group = Group::new();
        group.receive(self, dtype, peer, target)?;
        group.submit()
    }

    /// What went wrong in collectives under way: a lost rank, a network's failure. To be asked while the stream takes
    /// longer than expected; after an error, [`abort`](Comm::abort).
    ///
    /// # Errors
    ///
    /// What RCCL found.
    pub fn check(&self) -> Result<()> {
        let device = self.stream().device();
        let table = table(device)?;
        device.enter()?;
        let _alone = self.inner.calls.write();
        self.inner.usable()?;
        let mut state = ncclResult_t::ncclSuccess;
        // SAFETY: the handle lives; the call writes one status.
        unsafe { call!(device, table.ncclCommGetAsyncError(self.inner.raw, &mut state)) }?;
        match state {
            ncclResult_t::ncclInProgress => Ok(()),
            state => check(device.name(), "ncclCommGetAsyncError", Ok(state)),
        }
    }

    /// Ends the rank without waiting for the others: collectives in flight end, with undefined contents in their targets. Later
    /// calls of every clone, and of graphs that captured its collectives, are errors. Waits for calls into RCCL that have not
    /// returned.
    ///
    /// # Errors
    ///
    /// What RCCL says.
    pub fn abort(&self) -> Result<()> {
        let device = self.stream().device();
        let table = table(device)?;
        device.enter()?;
        let _alone = self.inner.calls.write();
        if self.inner.aborted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the handle lives, and ends here: nothing uses it once `aborted` is set.
        unsafe { call!(device, table.ncclCommAbort(self.inner.raw)) }
    }
}

impl Inner {
    fn usable(&self) -> Result<()> {
        match self.aborted.load(Ordering::Acquire) {
            true => Err(Error::argument("communicator", "was aborted")),
            false => Ok(()),
        }
    }
}

impl Resource for Inner {
    fn used(&self, _submission: u64) {}

    fn hold(&self) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        // A graph may use it several times.
        let guard = self.calls.read_recursive();
        self.usable()?;
        Ok(Some(guard))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.aborted.get_mut() {
            return;
        }
        let device = self.stream.device();
        let result = table(device).and_then(|table| {
            let hip = device.select()?;
            // SAFETY: the handles live; the rank ends once, here. A thread that panics may have left out a collective that
            // other ranks wait for, and would wait for them.
            unsafe {
                if thread::panicking() {
                    return call!(device, table.ncclCommAbort(self.raw));
                }
                let idle = call!(device, hip.hipStreamSynchronize(self.stream.raw()));
                idle.and(call!(device, table.ncclCommDestroy(self.raw)))
            }
        });
        device.park(result);
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comm")
            .field("rank", &self.rank())
            .field("ranks", &self.ranks())
            .field("stream", self.stream())
            .finish()
    }
}
