//! A point in a stream.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use hipvit_sys::hip::{
    hipError_t, hipEvent_t, hipEventBlockingSync, hipEventDefault, hipEventDisableTiming, hipStream_t,
};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::status::{call, is};
use crate::stream_failure::StreamFailure;

/// A point in a stream's queue. [`Stream::record`](crate::Stream::record) creates it with a timestamp.
/// [`Stream::mark`](crate::Stream::mark) and [`Stream::mark_blocking`](crate::Stream::mark_blocking) create it without one. Cheap to clone.
#[derive(Clone)]
pub struct Event {
    inner: Arc<Inner>,
}

/// Purpose of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Time,
    Order,
    /// Ordering. A thread that waits for it blocks.
    BlockingWait,
}

struct Inner {
    device: Device,
    raw: hipEvent_t,
    timed: bool,
    stream: u64,
    /// Lower bound of the stream's submissions before this point.
    after: u64,
    failure: StreamFailure,
}

// SAFETY: HIP's functions take an event handle from any thread. It is recorded once, before it is shared, and destroyed once, by the last
// owner.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Event {
    /// Records an event at the present end of the queue `raw` of the stream `stream`. `after` is the number of submissions counted before.
    ///
    /// # Safety
    ///
    /// The stream's handle must be alive and belong to `device`.
    pub(crate) unsafe fn record(
        device: &Device,
        queue: hipStream_t,
        stream: u64,
        after: u64,
        failure: StreamFailure,
        purpose: Purpose,
    ) -> Result<Self> {
        let hip = device.select()?;
        let mut raw = ptr::null_mut();
        let flags = match purpose {
            Purpose::Time => hipEventDefault,
            Purpose::Order => hipEventDisableTiming,
            Purpose::BlockingWait => hipEventDisableTiming | hipEventBlockingSync,
        };
        // SAFETY: the call writes one handle.
        unsafe { call!(device, hip.hipEventCreateWithFlags(&mut raw, flags)) }?;
        let event = Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                raw,
                timed: purpose == Purpose::Time,
                stream,
                after,
                failure,
            }),
        };
        // SAFETY: both handles are alive.
        unsafe { call!(device, hip.hipEventRecord(raw, queue)) }?;
        Ok(event)
    }

    /// Waits until the device has passed this point.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if earlier work failed.
    pub fn synchronize(&self) -> Result<()> {
        let device = &self.inner.device;
        let hip = device.enter()?;
        // SAFETY: the handle is alive.
        unsafe { call!(device, hip.hipEventSynchronize(self.inner.raw)) }?;
        self.inner.failure.check()
    }

    /// Returns true if the device has passed this point.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if earlier work failed.
    pub fn is_done(&self) -> Result<bool> {
        self.inner.device.enter()?;
        let done = self.poll()?;
        self.inner.failure.check()?;
        Ok(done)
    }

    /// Returns true if the device has passed this point. For an internal thread: a parked error stays parked.
    pub(crate) fn poll(&self) -> Result<bool> {
        let device = &self.inner.device;
        let hip = device.select()?;
        // SAFETY: the handle is alive.
        match unsafe { call!(device, hip.hipEventQuery(self.inner.raw)) } {
            Ok(()) => Ok(true),
            Err(error) if is(&error, hipError_t::hipErrorNotReady) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the device time from `earlier` to this point. Waits for both.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an event has no timestamp or the devices differ; [`Error::Device`] if earlier work failed.
    pub fn since(&self, earlier: &Self) -> Result<Duration> {
        if !(self.inner.timed && earlier.inner.timed) {
            return Err(Error::argument(
                "event",
                "has no time: it was marked, not recorded",
            ));
        }
        earlier.synchronize()?;
        self.synchronize()?;
        let device = &self.inner.device;
        let hip = device.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the handles are alive; the call writes one float.
        unsafe {
            call!(
                device,
                hip.hipEventElapsedTime(&mut milliseconds, earlier.inner.raw, self.inner.raw)
            )
        }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    pub(crate) fn raw(&self) -> hipEvent_t {
        self.inner.raw
    }

    /// Returns true if the event comes after this submission of this stream.
    pub(crate) fn is_after(&self, stream: u64, submission: u64) -> bool {
        self.inner.stream == stream && self.inner.after >= submission
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let device = &self.device;
        let result = device
            .select()
            // SAFETY: the last owner destroys the handle, once. HIP allows this while a stream waits for the event.
            .and_then(|hip| unsafe { call!(device, hip.hipEventDestroy(self.raw)) });
        device.park(result);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("stream", &self.inner.stream)
            .field("after", &self.inner.after)
            .finish()
    }
}
