//! Memory that an unfinished copy owns.

use std::mem::{self, ManuallyDrop};

use crate::error::Result;
use crate::event::Event;
use crate::status::call;
use crate::stream::Stream;

/// Host memory in a copy that may not be finished. [`wait`](Pending::wait) gives it back.
///
/// Dropping it waits. Forgetting it leaks the memory. So memory that the device may still read or write is never freed or given
/// out.
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

    /// Waits for the copy and gives the memory back.
    ///
    /// # Errors
    ///
    /// What the copy, or work of its stream before it, failed with. The memory is dropped then.
    pub fn wait(self) -> Result<P> {
        let mut this = ManuallyDrop::new(self);
        let done = this.event.synchronize();
        // SAFETY: `this` is never dropped or used again, so that each field is moved out once.
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

    /// True if the copy is done, so that [`wait`](Pending::wait) will not wait.
    ///
    /// # Errors
    ///
    /// What the copy failed with.
    pub fn is_done(&self) -> Result<bool> {
        self.event.is_done()
    }

    /// The copy's end, for another stream to wait for. It has no time.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Drops the payload if the stream is known to have done with it, and leaks it otherwise.
    pub(crate) fn settle(stream: &Stream, payload: P) {
        let device = stream.device();
        let idle = device.select().and_then(|hip| {
            // SAFETY: the handle lives.
            unsafe { call!(device, hip.hipStreamSynchronize(stream.raw())) }
        });
        match idle {
            Ok(()) => drop(payload),
            Err(_) => mem::forget(payload),
        }
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
