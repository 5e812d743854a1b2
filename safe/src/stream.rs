//! A queue of device work, and the order that buffers rely on.

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use hipvit_sys::Hip;
use hipvit_sys::hip::{hipStream_t, hipStreamNonBlocking};

use super::buffer::DeviceBuffer;
use super::device::Device;
use super::event::Event;
use super::operand::Operand;
use super::pending::Pending;
use super::pool::Block;
use super::status::call;
use crate::error::{Error, Result};

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
    captured: Mutex<Vec<Arc<Block>>>,
}

// SAFETY: HIP's functions take a stream handle from any thread, several at a time; the handle is destroyed once, by the
// last owner.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Stream {
    pub(super) fn new(device: &Device) -> Result<Self> {
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
        Event::record(self, true)
    }

    /// An event at the queue's present end that is for order alone: it spares the device the taking of a time.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn mark(&self) -> Result<Event> {
        Event::record(self, false)
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

    /// Device memory of `len` elements, with arbitrary contents.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Argument`] if the stream is being captured or the size overflows.
    pub fn allocate<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::new(self, len)
    }

    /// Device memory of `len` elements, zero.
    ///
    /// # Errors
    ///
    /// As for [`Stream::allocate`].
    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.allocate(len)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Device memory with the values' copy; waits for it.
    ///
    /// # Errors
    ///
    /// As for [`Stream::allocate`], and what the copy fails with.
    pub fn upload<T: Pod + Send + Sync>(&self, values: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.allocate(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    pub(super) fn raw(&self) -> hipStream_t {
        self.inner.raw
    }

    pub(super) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Whether no one else has the stream.
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    pub(super) fn submitted(&self) -> u64 {
        self.inner.submitted.load(Ordering::Acquire)
    }

    /// Submits work that touches `operands` and nothing else: sees that the stream may use them, and notes the use.
    pub(super) fn submit(
        &self,
        operands: &[Operand<'_>],
        work: impl FnOnce(&Hip) -> Result<()>,
    ) -> Result<()> {
        let hip = self.device().enter()?;
        for operand in operands {
            operand.admit(self)?;
        }
        let result = work(hip);
        // Also after an error, which may be an earlier submission's.
        self.note(operands.iter().map(Operand::block));
        result
    }

    /// Submits a replay of work that was captured on this stream and touches these blocks.
    pub(super) fn submit_captured(
        &self,
        blocks: &[Arc<Block>],
        work: impl FnOnce(&Hip) -> Result<()>,
    ) -> Result<()> {
        self.refuse_capture("a graph")?;
        let hip = self.device().enter()?;
        let result = work(hip);
        self.note(blocks.iter());
        result
    }

    fn note<'a>(&self, blocks: impl Iterator<Item = &'a Arc<Block>>) {
        let number = self.inner.submitted.fetch_add(1, Ordering::AcqRel) + 1;
        let capturing = self.is_capturing();
        for block in blocks {
            block.used(number);
            if capturing {
                self.captured().push(block.clone());
            }
        }
    }

    /// Submits work on operands and on host memory that `payload` owns: the payload is out of reach until it is done.
    pub(super) fn submit_with<P>(
        &self,
        operands: &[Operand<'_>],
        payload: P,
        work: impl FnOnce(&Hip, &P) -> Result<()>,
    ) -> Result<Pending<P>> {
        self.refuse_capture("an asynchronous copy")?;
        let submitted = self.submit(operands, |hip| work(hip, &payload));
        match submitted.and_then(|()| self.mark()) {
            Ok(event) => Ok(Pending::new(payload, event, self.clone())),
            Err(error) => {
                // The copy may be under way all the same.
                Pending::settle(self, payload);
                Err(error)
            }
        }
    }

    pub(super) fn is_capturing(&self) -> bool {
        self.inner.capturing.load(Ordering::Acquire)
    }

    pub(super) fn set_capturing(&self, capturing: bool) {
        self.inner.capturing.store(capturing, Ordering::Release);
    }

    /// The memory that was used since capture began.
    pub(super) fn take_captured(&self) -> Vec<Arc<Block>> {
        std::mem::take(&mut *self.captured())
    }

    fn captured(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Block>>> {
        self.inner.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    ///
    /// The stream is being captured.
    pub(super) fn refuse_capture(&self, what: &str) -> Result<()> {
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
                device.pool().retire(self.id);
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
