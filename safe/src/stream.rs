//! A queue of device work, and the order that buffers rely on.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hipvit_sys::Hip;
use hipvit_sys::hip::{hipStream_t, hipStreamNonBlocking};
use parking_lot::{Mutex, MutexGuard};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::status::call;

/// A queue of work on a device: what is submitted runs later, in order. Cheap to clone; clones are the same queue.
///
/// Streams run independently of each other and of HIP's default stream.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    raw: hipStream_t,
    id: u64,
    /// How many submissions were made, for [`Event`]s to tell what came before them.
    submitted: AtomicU64,
    capturing: AtomicBool,
    /// The memory that the graph under capture uses.
    captured: Mutex<Vec<Arc<dyn Resource>>>,
}

/// What submitted work uses: a graph keeps it, and it knows when it was used last.
pub(crate) trait Resource: Send + Sync {
    /// The stream's submission of this number uses it.
    fn used(&self, submission: u64);
}

// SAFETY: HIP's functions take a stream handle from any thread, several at a time; the handle is destroyed once, by the
// last owner.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let hip = device.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle.
        unsafe {
            call!(
                device,
                hip.hipStreamCreateWithFlags(&mut raw, hipStreamNonBlocking)
            )
        }?;
        Ok(Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                raw,
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                submitted: AtomicU64::new(0),
                capturing: AtomicBool::new(false),
                captured: Mutex::default(),
            }),
        })
    }

    /// The device it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Waits until all that was submitted is done.
    ///
    /// # Errors
    ///
    /// What any of it failed with.
    pub fn synchronize(&self) -> Result<()> {
        let hip = self.device().enter()?;
        // SAFETY: the handle lives.
        unsafe { call!(self.device(), hip.hipStreamSynchronize(self.raw())) }
    }

    /// An event at the queue's present end, with its time.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn record(&self) -> Result<Event> {
        self.event(true)
    }

    /// An event at the queue's present end that is for order alone: it spares the device the taking of a time.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn mark(&self) -> Result<Event> {
        self.event(false)
    }

    fn event(&self, timed: bool) -> Result<Event> {
        let Inner { device, raw, id, .. } = &*self.inner;
        // Read before the event is put into the queue: what is counted was submitted before.
        let after = self.submitted();
        // SAFETY: the handle lives, and is of this device.
        unsafe { Event::record(device, *raw, *id, after, timed) }
    }

    /// What is submitted from now on runs after `event`, which may be another stream's.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let hip = self.device().enter()?;
        // SAFETY: both handles live; HIP keeps what it needs of the event.
        unsafe { call!(self.device(), hip.hipStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }

    pub(crate) fn raw(&self) -> hipStream_t {
        self.inner.raw
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Whether no one else has the stream.
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
        let hip = self.device().enter()?;
        let result = work(hip);
        self.note(used.iter().cloned());
        result
    }

    /// Counts a submission that used these, and keeps them for the graph under capture.
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

    pub(crate) fn is_capturing(&self) -> bool {
        self.inner.capturing.load(Ordering::Acquire)
    }

    pub(crate) fn set_capturing(&self, capturing: bool) {
        self.inner.capturing.store(capturing, Ordering::Release);
    }

    /// The memory that was used since capture began.
    pub(crate) fn take_captured(&self) -> Vec<Arc<dyn Resource>> {
        std::mem::take(&mut *self.captured())
    }

    fn captured(&self) -> MutexGuard<'_, Vec<Arc<dyn Resource>>> {
        self.inner.captured.lock()
    }

    /// # Errors
    ///
    /// The stream is being captured.
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
        // Its unused blocks become anyone's, once its work is done. Where that cannot be known they stay its own, and
        // wait for a trim.
        let device = self.device.clone();
        let result = device.select().and_then(|hip| {
            // SAFETY: the handle lives until the next call.
            let done = unsafe { call!(device, hip.hipStreamSynchronize(self.raw)) };
            if done.is_ok() {
                device.cache().retire(self.id);
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
