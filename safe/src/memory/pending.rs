//! Memory that is owned by an unfinished copy.

use std::mem::{self, ManuallyDrop};

use crate::error::Result;
use crate::event::Event;
use crate::status::call;
use crate::stream::Stream;

/// Host memory of a copy that may be unfinished. [`wait`](Pending::wait) returns it.
///
/// Dropping it waits. Forgetting it leaks the memory. Memory that the device may still access is therefore never freed or handed out.
#[must_use = "dropping it waits for the copy and throws the memory away"]
#[derive(Debug)]
pub struct Pending<P> {
    payload: ManuallyDrop<P>,
    event: Event,
    stream: Stream,
}

impl<P> Pending<P> {
    /// `event` was recorded on `stream` after the copy.
    pub(crate) fn new(payload: P, event: Event, stream: Stream) -> Self {
        Self {
            payload: ManuallyDrop::new(payload),
            event,
            stream,
        }
    }

    /// Waits for the copy and returns the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::Error::Device) if the copy or earlier work of its stream failed. The memory is dropped then.
    pub fn wait(self) -> Result<P> {
        let mut this = ManuallyDrop::new(self);
        let done = this.event.synchronize();
        // SAFETY: `this` is neither dropped nor used again, so each field is moved out once.
        let (payload, event, stream) = unsafe {
            (
                ManuallyDrop::take(&mut this.payload),
                std::ptr::read(&this.event),
                std::ptr::read(&this.stream),
            )
        };
        drop(event);
        match done {
            Ok(()) => Ok(payload),
            Err(error) => {
                Self::settle(&stream, payload);
                Err(error)
            }
        }
    }

    /// Returns true if the copy is done, so that [`wait`](Pending::wait) does not block.
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::Error::Device) if the copy failed.
    pub fn is_done(&self) -> Result<bool> {
        self.event.is_done()
    }

    /// Returns the event at the end of the copy, for another stream to wait for. It has no timestamp.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Drops the payload if the stream has finished with it, and leaks it otherwise.
    pub(crate) fn settle(stream: &Stream, payload: P) {
        let device = stream.device();
        let idle = device.select().and_then(|hip| {
            // SAFETY: the handle is alive.
            unsafe { call!(device, hip.hipStreamSynchronize(stream.raw())) }
        });
        match idle {
            Ok(()) => drop(payload),
            Err(_) => mem::forget(payload),
        }
    }
}

impl<P> Pending<Vec<P>> {
    /// Adds memory that the device does not access after the event.
    pub(crate) fn add(&mut self, payload: P) {
        self.payload.push(payload);
    }
}

impl<P> Drop for Pending<P> {
    fn drop(&mut self) {
        let done = self.event.synchronize();
        // SAFETY: the payload is taken once, here; `wait` does not drop `self`.
        let payload = unsafe { ManuallyDrop::take(&mut self.payload) };
        if done.is_ok() {
            drop(payload);
        } else {
            Self::settle(&self.stream, payload);
        }
        self.stream.device().park(done);
    }
}
