//! Events: points in streams, and the host's time when they were reached.

use std::sync::{Arc, Mutex, PoisonError};

use hip_provider::Handles;
use hip_provider::hip::put;
use hipvit_sys::hip::{self, hipError_t, hipEvent_t, hipStream_t};

use super::capture::Captured;
use super::hip;
use super::machine::{Device, current};
use super::queue::{self, Point};
use super::recording::{Recording, State};
use super::stream::{self, Stream};
use super::task::Task;

static EVENTS: Handles<Event> = Handles::new();

const VALID_FLAGS: u32 = hip::hipEventBlockingSync
    | hip::hipEventDisableTiming
    | hip::hipEventInterprocess
    | hip::hipEventDisableSystemFence
    | hip::hipEventReleaseToDevice
    | hip::hipEventReleaseToSystem;

pub(super) struct Event {
    device: &'static Device,
    flags: u32,
    pub(super) recording: Arc<Recording>,
    /// The capture in which the event was last recorded. Valid while the recording says so.
    captured: Mutex<Option<Captured>>,
}

impl Event {
    fn captured(&self) -> Option<Captured> {
        match self.recording.state() {
            State::Captured => self
                .captured
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            _ => None,
        }
    }

    fn record(&self, stream: &Stream) -> Result<(), hipError_t> {
        if let Some(captured) = stream.captured()? {
            *self.captured.lock().unwrap_or_else(PoisonError::into_inner) = Some(captured);
            self.recording.set(State::Captured);
            return Ok(());
        }
        if stream.device.ordinal != self.device.ordinal {
            return Err(hipError_t::hipErrorInvalidHandle);
        }
        stream.submit(&Task::Record(self.recording.clone())).map(drop)
    }

    /// The point to wait for; `None` if there is none.
    fn point(&self) -> Result<Option<Point>, hipError_t> {
        match self.recording.state() {
            State::Never => Ok(None),
            State::Recorded(recorded) => Ok(Some(recorded.point)),
            State::Captured => Err(hipError_t::hipErrorCapturedEvent),
        }
    }
}

pub(super) fn find(event: hipEvent_t) -> Result<Arc<Event>, hipError_t> {
    EVENTS.get(event)
}

/// # Safety
/// `to` is null or may be written.
unsafe fn create(to: *mut hipEvent_t, flags: u32) -> Result<(), hipError_t> {
    if to.is_null() || flags & !VALID_FLAGS != 0 {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    let event = Event {
        device: current()?,
        flags,
        recording: Recording::new(),
        captured: Mutex::default(),
    };
    // SAFETY: as the caller says.
    unsafe { put(to, EVENTS.insert(Arc::new(event))) }
}

hip! {
    fn hipEventCreate(event: *mut hipEvent_t) {
        create(event, hip::hipEventDefault)
    }

    fn hipEventCreateWithFlags(event: *mut hipEvent_t, flags: u32) {
        create(event, flags)
    }

    fn hipEventDestroy(event: hipEvent_t) {
        EVENTS.remove(event).map(drop)
    }

    fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) {
        find(event)?.record(&*stream::find(stream)?)
    }

    /// `hipEventRecordExternal` has no effect: a record in a capture is part of the capture.
    fn hipEventRecordWithFlags(event: hipEvent_t, stream: hipStream_t, flags: u32) {
        if flags > 1 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        find(event)?.record(&*stream::find(stream)?)
    }

    fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: u32) {
        if flags > 1 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let (stream, event) = (stream::find(stream)?, find(event)?);
        match event.captured() {
            Some(captured) => stream.member.join(captured),
            // An event that was never recorded is complete.
            None if event.recording.recorded().is_none() => Ok(()),
            // Recorded outside the capture: a replay could not wait for it.
            None if stream.captured()?.is_some() => Err(hipError_t::hipErrorStreamCaptureIsolation),
            None => stream.submit(&Task::Wait(event.recording.clone())).map(drop),
        }
    }

    fn hipEventSynchronize(event: hipEvent_t) {
        let event = find(event)?;
        if let Some(point) = event.point()? {
            super::capture_mode::forbid_waiting()?;
            queue::wait(&[point]);
        }
        event.device.outcome()
    }

    fn hipEventQuery(event: hipEvent_t) {
        let event = find(event)?;
        match event.point()? {
            Some(point) if !queue::poll(&[point]) => Err(hipError_t::hipErrorNotReady),
            _ => event.device.outcome(),
        }
    }

    /// Host time between the events; it does not measure a GPU.
    fn hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, stop: hipEvent_t) {
        let (start, stop) = (find(start)?, find(stop)?);
        if (start.flags | stop.flags) & hip::hipEventDisableTiming != 0 {
            return Err(hipError_t::hipErrorInvalidHandle);
        }
        let (Some(from), Some(to)) = (start.recording.recorded(), stop.recording.recorded()) else {
            return Err(hipError_t::hipErrorInvalidHandle);
        };
        start.device.outcome()?;
        let points = [from.point, to.point];
        if !queue::poll(&points) {
            return Err(hipError_t::hipErrorNotReady);
        }
        let (Some(from), Some(to)) = (from.time.get(), to.time.get()) else {
            return Err(hipError_t::hipErrorNotReady);
        };
        let elapsed = match to.checked_duration_since(*from) {
            Some(later) => later.as_secs_f64(),
            None => -from.duration_since(*to).as_secs_f64(),
        };
        put(milliseconds, (elapsed * 1e3) as f32)
    }
}
