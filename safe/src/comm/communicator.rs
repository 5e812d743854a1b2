//! Communicators: creation, supervision and destruction of ranks.

use std::fmt;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use hipvit_sys::rccl::{ncclComm_t, ncclResult_t, ncclUniqueId};
use parking_lot::RwLock;

use super::progress::Progress;
use super::rank::{Inner, Raw, initialise};
use super::rendezvous::Rendezvous;
use super::watchdog;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::libraries;
use crate::status::{call, check};
use crate::stream::Stream;

/// One rank of a communicator on a stream of its GPU: RCCL, or NCCL with a provider for CUDA. Cheap to clone.
///
/// Either one process creates all ranks ([`Comm::all`]), or each process or thread creates its own from a shared id ([`Comm::with_id`]).
/// All ranks must submit the same collectives in the same order. A collective runs once all ranks have submitted it. A thread with several
/// ranks submits the calls of one collective in a [`Group`](super::Group).
///
/// Buffers belong to the rank's stream, as in a launch. A collective is ordered like other work of the stream.
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
/// # Lost ranks
///
/// A collective waits for all ranks. A watchdog checks every communicator, so that no wait is endless. It [aborts](Comm::abort) a rank if
/// RCCL reports an error ([`Comm::check`]) or if a submission exceeds [`CommOptions::timeout`] (300 s by default). The stream then
/// continues with undefined contents in what it wrote. Every wait for the stream and every later call of the communicator returns
/// [`Error::Communicator`], with the rank and the reason. To continue, create new streams and a new communicator.
///
/// The watchdog cannot end a call into RCCL that does not return, such as the first collective while ranks connect. [`Comm::with_id`]
/// applies the time-out itself.
///
/// Dropping the last clone waits for the stream, at most for the time-out, and destroys the rank.
#[derive(Clone)]
pub struct Comm {
    pub(super) inner: Arc<Inner>,
}

/// Time-outs of a communicator's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommOptions {
    /// Maximum time to wait for the creation of other ranks, and for a running submission. `None` for no limit.
    pub timeout: Option<Duration>,
}

impl Default for CommOptions {
    /// The time-out is 300 s.
    fn default() -> Self {
        Self {
            timeout: Some(Duration::from_secs(300)),
        }
    }
}

impl CommOptions {
    /// Returns options with this time-out.
    #[must_use]
    pub fn with_timeout(timeout: impl Into<Option<Duration>>) -> Self {
        Self {
            timeout: timeout.into(),
        }
    }
}

/// Identifier by which ranks of several processes find each other. One process creates it and sends its bytes to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// Creates an id for one communicator.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if RCCL cannot be opened; [`Error::Device`] if it fails.
    pub fn new(device: &Device) -> Result<Self> {
        let table = libraries::rccl(device)?;
        device.enter()?;
        let mut id = ncclUniqueId::default();
        // SAFETY: the call writes one id.
        unsafe { call!(device, table.ncclGetUniqueId(&mut id)) }?;
        Ok(Self(id.internal.map(|byte| byte as u8)))
    }

    /// Returns the bytes of the identifier.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 128] {
        self.0
    }

    /// Restores an id from bytes that another process sent.
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

impl Comm {
    /// Creates all ranks of a communicator, for a process that has all of its GPUs. Rank `n` is on `streams[n]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if two streams belong to one GPU or to different runtimes; [`Error::Provider`] if RCCL cannot be opened;
    /// [`Error::Device`] if RCCL fails.
    pub fn all(streams: &[Stream]) -> Result<Vec<Self>> {
        Self::all_with(streams, CommOptions::default())
    }

    /// Creates all ranks of a communicator with options. See [`Comm::all`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if two streams belong to one GPU or to different runtimes; [`Error::Provider`] if RCCL cannot be opened;
    /// [`Error::Device`] if RCCL fails.
    pub fn all_with(streams: &[Stream], options: CommOptions) -> Result<Vec<Self>> {
        let wrong = |reason: &str| Err(Error::argument("streams", reason));
        let Some(first) = streams.first() else {
            return wrong("a communicator has at least one rank");
        };
        for (index, stream) in streams.iter().enumerate() {
            if !stream.device().runtime().is(first.device().runtime()) {
                return wrong("their GPUs belong to several runtimes");
            }
            if streams[..index]
                .iter()
                .any(|other| other.device() == stream.device())
            {
                return wrong("two of them are of the same GPU");
            }
        }
        let device = first.device();
        let table = libraries::rccl(device)?;
        device.enter()?;
        let ordinals: Vec<i32> = streams
            .iter()
            .map(|stream| stream.device().ordinal() as i32)
            .collect();
        let mut raw = vec![ptr::null_mut(); streams.len()];
        // SAFETY: the call reads and writes as many elements as its arguments say.
        unsafe {
            call!(
                device,
                table.ncclCommInitAll(raw.as_mut_ptr(), raw.len() as i32, ordinals.as_ptr())
            )
        }?;
        let ranks = streams.iter().zip(raw).enumerate();
        ranks
            .map(|(rank, (stream, raw))| Self::of(stream, raw, rank, streams.len(), options))
            .collect()
    }

    /// Creates rank `rank` of `ranks`, on `stream`. Waits until all ranks have called this with the same id, each in its own process or
    /// thread.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist; [`Error::Provider`] if RCCL cannot be opened; [`Error::Device`] if it fails.
    pub fn with_id(stream: &Stream, id: UniqueId, rank: usize, ranks: usize) -> Result<Self> {
        Self::with_id_and(stream, id, rank, ranks, CommOptions::default())
    }

    /// Creates the rank of this process among those of a [`Rendezvous`], each on one stream. Waits for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if a rank fails before the communicator exists; [`Error::Provider`] if RCCL cannot be opened;
    /// [`Error::Device`] if RCCL fails.
    pub fn join(stream: &Stream, rendezvous: &mut Rendezvous, options: CommOptions) -> Result<Self> {
        let (rank, ranks) = (rendezvous.world().rank(), rendezvous.world().size());
        // A failure of the first rank concerns all ranks, which would wait for its id.
        let own = match rank {
            0 => UniqueId::new(stream.device()).map(|id| id.to_bytes().to_vec()),
            _ => Ok(Vec::new()),
        };
        let given = rendezvous.gather(own.as_deref().unwrap_or_default())?;
        own?;
        let id = given.first().and_then(|id| <[u8; 128]>::try_from(&id[..]).ok());
        let id =
            id.ok_or_else(|| rendezvous.error("rank 0 could not make a unique id; its own output says why"))?;
        Self::with_id_and(stream, UniqueId::from_bytes(id), rank, ranks, options)
    }

    /// Creates one rank of a communicator with options. See [`Comm::with_id`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist; [`Error::Provider`] if RCCL cannot be opened; [`Error::Device`] if RCCL fails.
    pub fn with_id_and(
        stream: &Stream,
        id: UniqueId,
        rank: usize,
        ranks: usize,
        options: CommOptions,
    ) -> Result<Self> {
        let (Ok(number), Ok(count), true) = (i32::try_from(rank), i32::try_from(ranks), rank < ranks) else {
            return Err(Error::argument("rank", format!("{rank} of {ranks}")));
        };
        let device = stream.device();
        libraries::rccl(device)?;
        device.enter()?;
        let id = ncclUniqueId {
            internal: id.0.map(|byte| byte as std::ffi::c_char),
        };
        // On a thread that may be left behind, because RCCL waits for missing ranks without a time limit.
        let (made, result) = mpsc::channel();
        let owner = device.clone();
        let named = thread::Builder::new().name(format!("RCCL rank {rank}"));
        let started = named.spawn(move || {
            let raw = initialise(&owner, count, id, number);
            if let Err(mpsc::SendError(Ok(Raw(raw)))) = made.send(raw.map(Raw))
                && let Ok(table) = libraries::rccl(&owner)
            {
                // SAFETY: the handle is alive and has no other owner.
                let _ = unsafe { call!(owner, table.ncclCommAbort(raw)) };
            }
        });
        started.map_err(|source| Error::System {
            call: "starting a thread",
            source,
        })?;
        let result = match options.timeout {
            Some(timeout) => result.recv_timeout(timeout),
            None => result.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
        };
        match result {
            Ok(made) => Self::of(stream, made?.0, rank, ranks, options),
            Err(_) => Err(Error::Communicator {
                device: device.name().to_owned(),
                rank,
                ranks,
                reason: format!(
                    "not all ranks came within {} s (ncclCommInitRank)",
                    options.timeout.unwrap_or_default().as_secs_f64()
                ),
            }),
        }
    }

    fn of(stream: &Stream, raw: ncclComm_t, rank: usize, ranks: usize, options: CommOptions) -> Result<Self> {
        let inner = Arc::new(Inner {
            stream: stream.clone(),
            side: OnceLock::new(),
            raw,
            rank,
            ranks,
            aborted: AtomicBool::new(false),
            failure: OnceLock::new(),
            aborting: AtomicBool::new(false),
            timeout: options.timeout,
            progress: Progress::default(),
            calls: RwLock::new(()),
        });
        watchdog::watch(&inner)?;
        Ok(Self { inner })
    }

    /// Returns the stream that collectives are submitted to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// Returns the number of this rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// Returns the number of ranks of the communicator.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.inner.ranks
    }

    /// Checks running collectives for errors, such as a lost rank or a network failure. Call it if the stream takes longer than expected,
    /// and [`abort`](Comm::abort) after an error.
    ///
    /// # Errors
    ///
    /// The error that RCCL found.
    pub fn check(&self) -> Result<()> {
        let device = self.stream().device();
        let table = libraries::rccl(device)?;
        device.enter()?;
        let _alone = self.inner.calls.write();
        self.inner.usable()?;
        let mut state = ncclResult_t::ncclSuccess;
        // SAFETY: the handle is alive; the call writes one status.
        unsafe { call!(device, table.ncclCommGetAsyncError(self.inner.raw, &mut state)) }?;
        match state {
            ncclResult_t::ncclInProgress => Ok(()),
            state => check(device.name(), "ncclCommGetAsyncError", Ok(state))
                .map_err(|error| self.inner.explained(error)),
        }
    }

    /// Ends the rank without waiting for the others. Running collectives end, with undefined contents in their targets. Later calls of any
    /// clone, and of graphs that captured its collectives, are errors. Waits for running calls into RCCL.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if RCCL fails.
    pub fn abort(&self) -> Result<()> {
        self.stream().device().enter()?;
        self.inner.abort()
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        watchdog::release(&self.inner);
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
