//! Ranks of communicators: how they are made, watched and ended.

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

/// One rank of a communicator, on one stream of its GPU: RCCL, or NCCL where the provider is one for CUDA. Cheap to clone.
///
/// Either one process makes all ranks ([`Comm::all`]), or each process or thread makes its own, from an id that they share
/// ([`Comm::with_id`]). Every rank has to submit the same collectives in the same order; a collective runs once all
/// ranks have submitted it. A thread that has several ranks submits those of one collective in a [`Group`](super::Group).
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
/// # Ranks that are lost
///
/// A collective waits for all ranks. A watchdog checks every communicator, so that none waits for ever. It [aborts](Comm::abort)
/// a rank if RCCL reports an error ([`Comm::check`]) or a submission exceeds [`CommOptions::timeout`] (300 s unless set). The
/// stream then continues with undefined contents in what it wrote. Every wait for the stream, and every later call of the
/// communicator, returns [`Error::Communicator`], which names the rank and the reason. To continue, make new streams and a new
/// communicator.
///
/// The watchdog cannot end a call into RCCL that does not return, such as the first collective while ranks connect.
/// [`Comm::with_id`] has the time-out itself.
///
/// Dropping the last clone waits for the stream, as long as the time-out at most, and ends the rank.
#[derive(Clone)]
pub struct Comm {
    pub(super) inner: Arc<Inner>,
}

/// Time limits for the ranks of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommOptions {
    /// Time limit for the other ranks to be made, and for a submission to end once it runs. `None`: no limit.
    pub timeout: Option<Duration>,
}

impl Default for CommOptions {
    /// 300 s.
    fn default() -> Self {
        Self {
            timeout: Some(Duration::from_secs(300)),
        }
    }
}

impl CommOptions {
    /// Options with this time-out.
    #[must_use]
    pub fn with_timeout(timeout: impl Into<Option<Duration>>) -> Self {
        Self {
            timeout: timeout.into(),
        }
    }
}

/// Identifier by which ranks of several processes find each other. One process makes it and passes its bytes on to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// A new id. For one communicator.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if RCCL cannot be opened; what it says otherwise.
    pub fn new(device: &Device) -> Result<Self> {
        let table = libraries::rccl(device)?;
        device.enter()?;
        let mut id = ncclUniqueId::default();
        // SAFETY: the call writes one id.
        unsafe { call!(device, table.ncclGetUniqueId(&mut id)) }?;
        Ok(Self(id.internal.map(|byte| byte as u8)))
    }

    /// Bytes of the identifier.
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

impl Comm {
    /// All ranks of a communicator, for a process that has every GPU of it: rank `n` on `streams[n]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if two streams are of one GPU, or the GPUs of several runtimes; [`Error::Provider`] if RCCL
    /// cannot be opened; what it says otherwise.
    pub fn all(streams: &[Stream]) -> Result<Vec<Self>> {
        Self::all_with(streams, CommOptions::default())
    }

    /// Makes all ranks of a communicator with options. See [`Comm::all`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if two streams are of one GPU or of several runtimes; [`Error::Provider`] if RCCL cannot be opened;
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
        // SAFETY: the call reads as many numbers, and writes as many handles, as its arguments say.
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

    /// Rank number `rank` of `ranks`, on `stream`. Waits until all ranks have called it with the same id, each in a
    /// process or thread of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no such rank; [`Error::Provider`] if RCCL cannot be opened; what it says otherwise.
    pub fn with_id(stream: &Stream, id: UniqueId, rank: usize, ranks: usize) -> Result<Self> {
        Self::with_id_and(stream, id, rank, ranks, CommOptions::default())
    }

    /// The rank of this process among those of a [`Rendezvous`], each on one stream. Waits for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if a rank fails before the communicator is made; [`Error::Provider`] if RCCL cannot be opened;
    /// [`Error::Device`] if RCCL fails.
    pub fn join(stream: &Stream, rendezvous: &mut Rendezvous, options: CommOptions) -> Result<Self> {
        let (rank, ranks) = (rendezvous.world().rank(), rendezvous.world().size());
        // The first rank's failure is all ranks' failure: they would wait for its id.
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

    /// Makes one rank of a communicator with options. See [`Comm::with_id`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no such rank; [`Error::Provider`] if RCCL cannot be opened; [`Error::Device`] if RCCL
    /// fails.
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
        // On a thread that may be left behind: RCCL waits for missing ranks without end.
        let (made, result) = mpsc::channel();
        let owner = device.clone();
        let named = thread::Builder::new().name(format!("RCCL rank {rank}"));
        let started = named.spawn(move || {
            let raw = initialise(&owner, count, id, number);
            if let Err(mpsc::SendError(Ok(Raw(raw)))) = made.send(raw.map(Raw))
                && let Ok(table) = libraries::rccl(&owner)
            {
                // SAFETY: the handle lives, and nothing else has it.
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

    /// The stream that it submits to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// Number of this rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// Number of ranks of the communicator.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.inner.ranks
    }

    /// Checks for errors in collectives under way, such as a lost rank or a network failure. Call it when the stream takes longer
    /// than expected, and [`abort`](Comm::abort) after an error.
    ///
    /// # Errors
    ///
    /// What RCCL found.
    pub fn check(&self) -> Result<()> {
        let device = self.stream().device();
        let table = libraries::rccl(device)?;
        device.enter()?;
        let _alone = self.inner.calls.write();
        self.inner.usable()?;
        let mut state = ncclResult_t::ncclSuccess;
        // SAFETY: the handle lives; the call writes one status.
        unsafe { call!(device, table.ncclCommGetAsyncError(self.inner.raw, &mut state)) }?;
        match state {
            ncclResult_t::ncclInProgress => Ok(()),
            state => check(device.name(), "ncclCommGetAsyncError", Ok(state))
                .map_err(|error| self.inner.explained(error)),
        }
    }

    /// Ends the rank without waiting for the others. Collectives in flight end, with undefined contents in their targets. Later
    /// calls of every clone, and of graphs that captured its collectives, are errors. Waits for calls into RCCL that are still
    /// running.
    ///
    /// # Errors
    ///
    /// What RCCL says.
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
