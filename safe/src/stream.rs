//! Queues of device work, and the order that buffers rely on.

use std::fmt;
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hipvit_sys::Hip;
use hipvit_sys::hip::{hipStream_t, hipStreamNonBlocking};
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::{Event, Purpose};
use crate::status::call;
use crate::stream_failure::{CommunicatorFailure, StreamFailure};

/// A queue of work on a device. Submitted work runs later, in order. Cheap to clone: clones are the same queue.
///
/// Streams run independently of each other and of HIP's default stream.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    raw: hipStream_t,
    /// True if another library owns the handle.
    is_foreign: bool,
    id: u64,
    /// Number of submissions. [`Event`]s use it to order them.
    submitted: AtomicU64,
    capturing: AtomicBool,
    /// Resources that the graph under capture uses.
    captured: Mutex<Vec<Arc<dyn Resource>>>,
    failure: StreamFailure,
}

/// A resource of submitted work. A graph keeps it alive, and it records its last use.
pub(crate) trait Resource: Send + Sync {
    /// Records that the submission with this number uses the resource.
    fn used(&self, submission: u64);

    /// Keeps the resource usable while the guard is alive.
    ///
    /// # Errors
    ///
    /// The resource cannot be used any more.
    fn hold(&self) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        Ok(None)
    }
}

/// Function that destroys a library's handle.
type Destroy = Box<dyn Fn(&Device) -> Result<()> + Send + Sync>;

/// A library's handle. It is destroyed once neither its owner nor a captured graph uses it.
pub(crate) struct Handle {
    stream: Stream,
    destroy: Destroy,
}

impl Handle {
    /// Creates a handle with `create`. `destroy` gets it once. No thread captures in the meantime, because libraries wait for the whole
    /// device in both.
    pub(crate) fn new<T>(
        stream: &Stream,
        create: impl FnOnce(&Device) -> Result<*mut T>,
        destroy: impl Fn(&Device, *mut T) -> Result<()> + Send + Sync + 'static,
    ) -> Result<(*mut T, Arc<Self>)> {
        let device = stream.device();
        device.enter()?;
        let alone = device.between_captures();
        let raw = create(device)?;
        drop(alone);
        let address = raw.expose_provenance();
        let handle = Self {
            stream: stream.clone(),
            destroy: Box::new(move |device| destroy(device, ptr::with_exposed_provenance_mut(address))),
        };
        Ok((raw, Arc::new(handle)))
    }
}

impl Resource for Handle {
    fn used(&self, _submission: u64) {}
}

impl Drop for Handle {
    fn drop(&mut self) {
        let device = self.stream.device();
        let _alone = device.between_captures();
        let destroyed = device.select().and_then(|_| (self.destroy)(device));
        device.park(destroyed);
    }
}

// SAFETY: HIP's functions take a stream handle from any thread, several at a time. The handle is destroyed once, by the last owner.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Options of a stream, for [`Device::stream_with`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Priority in the range of [`Device::stream_priorities`]. If streams compete for compute units, the lower number goes first.
    pub priority: Option<i32>,
    /// Compute units that the stream's kernels may use: bit `n % 32` of word `n / 32` is number `n`. Cannot be combined with a priority.
    pub compute_units: Option<Vec<u32>>,
}

impl Device {
    /// Creates a stream of normal priority on all compute units.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails, or a parked error.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self, &StreamOptions::default())
    }

    /// Creates a stream with a priority, or on some of the compute units.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the priority is out of range, no compute unit is left, or both options are set. [`Error::Device`] if the
    /// driver fails, as providers for CUDA do with compute units.
    pub fn stream_with(&self, options: &StreamOptions) -> Result<Stream> {
        Stream::new(self, options)
    }

    /// Wraps a stream that another library owns, such as PyTorch's current stream. `handle` is a `hipStream_t`; 0 is the default stream.
    ///
    /// # Safety
    ///
    /// The stream must belong to this device, and exist while the result, a clone, or memory from it is alive.
    #[must_use]
    pub unsafe fn foreign_stream(&self, handle: usize) -> Stream {
        Stream::with_handle(self, ptr::with_exposed_provenance_mut(handle), true)
    }

    /// Returns the range of stream priorities, the highest first: `-1..=1` on AMD GPUs, where 0 is normal.
    ///
    /// # Errors
    ///
    /// The driver does not report it.
    pub fn stream_priorities(&self) -> Result<RangeInclusive<i32>> {
        let hip = self.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the call writes two ints.
        unsafe {
            call!(
                self,
                hip.hipDeviceGetStreamPriorityRange(&mut least, &mut greatest)
            )
        }?;
        Ok(greatest..=least)
    }
}

impl Stream {
    fn with_handle(device: &Device, raw: hipStream_t, is_foreign: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                raw,
                is_foreign,
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                submitted: AtomicU64::new(0),
                capturing: AtomicBool::new(false),
                captured: Mutex::default(),
                failure: StreamFailure::default(),
            }),
        }
    }

    fn new(device: &Device, options: &StreamOptions) -> Result<Self> {
        if let Some(priority) = options.priority {
            let known = device.stream_priorities()?;
            if !known.contains(&priority) {
                let reason = format!("{priority} is not among {known:?}");
                return Err(Error::argument("priority", reason));
            }
        }
        let hip = device.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the calls write one handle, and read as many words of the mask as the count says.
        unsafe {
            match (options.priority, options.compute_units.as_deref()) {
                (None, None) => call!(
                    device,
                    hip.hipStreamCreateWithFlags(&mut raw, hipStreamNonBlocking)
                ),
                (Some(priority), None) => call!(
                    device,
                    hip.hipStreamCreateWithPriority(&mut raw, hipStreamNonBlocking, priority)
                ),
                (None, Some(mask)) if mask.iter().any(|&word| word != 0) => {
                    let words = u32::try_from(mask.len()).unwrap_or(u32::MAX);
                    call!(
                        device,
                        hip.hipExtStreamCreateWithCUMask(&mut raw, words, mask.as_ptr())
                    )
                }
                (None, Some(_)) => return Err(Error::argument("compute units", "the mask is empty")),
                (Some(_), Some(_)) => {
                    return Err(Error::argument(
                        "stream",
                        "can have a priority or a mask of compute units",
                    ));
                }
            }
        }?;
        Ok(Self::with_handle(device, raw, false))
    }

    /// Returns the priority of the stream; see [`Device::stream_priorities`].
    ///
    /// # Errors
    ///
    /// The driver does not report it.
    pub fn priority(&self) -> Result<i32> {
        let hip = self.device().enter()?;
        let mut priority = 0;
        // SAFETY: the handle is alive; the call writes one int.
        unsafe { call!(self.device(), hip.hipStreamGetPriority(self.raw(), &mut priority)) }?;
        Ok(priority)
    }

    /// Returns the compute units that the stream's kernels may use, as in [`StreamOptions::compute_units`].
    ///
    /// # Errors
    ///
    /// The driver does not report it.
    pub fn compute_units(&self) -> Result<Vec<u32>> {
        let hip = self.device().enter()?;
        let units = self.device().properties().compute_units;
        let mut mask = vec![0u32; units.div_ceil(32).max(1) as usize];
        // SAFETY: the handle is alive; the call writes as many words as the count says.
        unsafe {
            call!(
                self.device(),
                hip.hipExtStreamGetCUMask(self.raw(), mask.len() as u32, mask.as_mut_ptr())
            )
        }?;
        Ok(mask)
    }

    /// Returns the device of the stream.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Waits until all submitted work has finished.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if any of it failed.
    pub fn synchronize(&self) -> Result<()> {
        let hip = self.device().enter()?;
        // SAFETY: the handle is alive.
        unsafe { call!(self.device(), hip.hipStreamSynchronize(self.raw())) }?;
        self.inner.failure.check()
    }

    /// Records an event with a timestamp at the end of the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn record(&self) -> Result<Event> {
        self.event(Purpose::Time)
    }

    /// Records an event without a timestamp at the end of the queue. It is for ordering only, which is cheaper for the device.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn mark(&self) -> Result<Event> {
        self.event(Purpose::Order)
    }

    /// Records an event for which waiting threads block. For other events, drivers let threads spin, which is a few microseconds faster and
    /// takes a core. See [`Stream::mark`].
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn mark_blocking(&self) -> Result<Event> {
        self.event(Purpose::BlockingWait)
    }

    /// Records an event for an internal thread: a parked error stays parked. See [`Stream::mark`].
    pub(crate) fn mark_quietly(&self) -> Result<Event> {
        self.record_event(Purpose::Order)
    }

    /// Makes every later wait return this error: the stream's later results are undefined.
    pub(crate) fn fail(&self, failure: CommunicatorFailure) {
        let _ = self.inner.failure.set(failure);
    }

    fn event(&self, purpose: Purpose) -> Result<Event> {
        self.device().enter()?;
        self.record_event(purpose)
    }

    fn record_event(&self, purpose: Purpose) -> Result<Event> {
        let Inner {
            device,
            raw,
            id,
            failure,
            ..
        } = &*self.inner;
        // Read before the event is queued: counted submissions precede it.
        let after = self.submitted();
        // SAFETY: the handle is alive and belongs to this device.
        unsafe { Event::record(device, *raw, *id, after, failure.clone(), purpose) }
    }

    /// Makes later submissions run after `event`, which may belong to another stream.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let hip = self.device().enter()?;
        // SAFETY: both handles are alive; HIP keeps what it needs of the event.
        unsafe { call!(self.device(), hip.hipStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }

    /// Makes later submissions run after `event`, for an internal thread: a parked error stays parked. See [`Stream::wait`].
    pub(crate) fn wait_quietly(&self, event: &Event) -> Result<()> {
        let hip = self.device().select()?;
        // SAFETY: both handles are alive; HIP keeps what it needs of the event.
        unsafe { call!(self.device(), hip.hipStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }

    pub(crate) fn raw(&self) -> hipStream_t {
        self.inner.raw
    }

    /// Returns the driver's handle, a `hipStream_t`, for libraries that order their work with this stream's.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.inner.raw.addr()
    }

    /// Returns the number of the stream, unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Returns true if the stream has no other owner.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.inner.submitted.load(Ordering::Acquire)
    }

    /// Submits a replay of work that was captured on this stream and uses these resources.
    pub(crate) fn submit_captured(
        &self,
        used: &[Arc<dyn Resource>],
        work: impl FnOnce(&Hip) -> Result<()>,
    ) -> Result<()> {
        self.refuse_capture("a graph")?;
        // In the order of addresses, as a group locks its communicators, so that threads do not deadlock.
        let mut by_address: Vec<&Arc<dyn Resource>> = used.iter().collect();
        by_address.sort_by_key(|resource| Arc::as_ptr(resource).addr());
        let held = by_address
            .into_iter()
            .filter_map(|resource| resource.hold().transpose());
        let _held = held.collect::<Result<Vec<_>>>()?;
        let hip = self.device().enter()?;
        let result = work(hip);
        self.note(used.iter().cloned());
        result
    }

    /// Counts a submission that used these resources, and keeps them for the graph under capture.
    pub(crate) fn note(&self, used: impl Iterator<Item = Arc<dyn Resource>>) {
        let number = self.inner.submitted.fetch_add(1, Ordering::AcqRel) + 1;
        let capturing = self.is_capturing();
        for resource in used {
            resource.used(number);
            if capturing {
                self.captured().push(resource);
            }
        }
    }

    /// Keeps a resource other than memory, such as the module of a kernel, for the graph under capture.
    pub(crate) fn keep(&self, resource: impl FnOnce() -> Arc<dyn Resource>) {
        if self.is_capturing() {
            self.captured().push(resource());
        }
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.inner.capturing.load(Ordering::Acquire)
    }

    pub(crate) fn set_capturing(&self, capturing: bool) {
        self.inner.capturing.store(capturing, Ordering::Release);
    }

    /// Returns the resources that were used since the capture started.
    pub(crate) fn take_captured(&self) -> Vec<Arc<dyn Resource>> {
        std::mem::take(&mut *self.captured())
    }

    fn captured(&self) -> MutexGuard<'_, Vec<Arc<dyn Resource>>> {
        self.inner.captured.lock()
    }

    /// Checks that the stream is not being captured.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] during a capture.
    pub(crate) fn refuse_capture(&self, what: &str) -> Result<()> {
        if self.is_capturing() {
            return Err(Error::argument(
                "graph",
                format!("{what} cannot be part of a captured graph"),
            ));
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Release its unused blocks for all streams, once its work is done. If that is unknown, they keep their owner until the next trim.
        let device = self.device.clone();
        let result = device.select().and_then(|hip| {
            // SAFETY: the handle is alive until the next call.
            let done = unsafe { call!(device, hip.hipStreamSynchronize(self.raw)) };
            if done.is_ok() {
                device.cache().retire(self.id);
            }
            if self.is_foreign {
                return done;
            }
            // SAFETY: the last owner destroys the handle, once.
            done.and(unsafe { call!(device, hip.hipStreamDestroy(self.raw)) })
        });
        device.park(result);
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.inner.id)
            .field("device", self.device())
            .finish()
    }
}
