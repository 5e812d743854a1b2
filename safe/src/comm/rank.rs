//! The handle of a rank: its calls, its failures and its destruction.

use std::ffi::CStr;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hipvit_sys::Rccl;
use hipvit_sys::rccl::{ncclComm_t, ncclResult_t, ncclUniqueId};
use parking_lot::{RwLock, RwLockReadGuard};

use super::progress::Progress;
use super::side_stream::SideStream;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::libraries;
use crate::status::{call, check};
use crate::stream::{Resource, Stream};
use crate::stream_failure::CommunicatorFailure;

pub(crate) struct Inner {
    pub(super) stream: Stream,
    /// Side stream of the rank's collectives, once one is used.
    pub(super) side: OnceLock<SideStream>,
    pub(super) raw: ncclComm_t,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) aborted: AtomicBool,
    /// Reason why the watchdog aborts the rank.
    pub(super) failure: OnceLock<CommunicatorFailure>,
    /// True once the watchdog has started to abort the rank.
    pub(super) aborting: AtomicBool,
    /// Time-out of collectives.
    pub(super) timeout: Option<Duration>,
    pub(super) progress: Progress,
    /// Write-locked while RCCL is called, since it supports one call at a time. Read-locked while a graph that uses the rank is launched.
    pub(super) calls: RwLock<()>,
}

// SAFETY: RCCL's functions take the handle from any thread, one at a time, which `calls` ensures; it is destroyed once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A handle that is sent from the thread that waited for it.
pub(super) struct Raw(pub(super) ncclComm_t);

// SAFETY: RCCL's functions take the handle from any thread.
unsafe impl Send for Raw {}

/// Creates a rank once all others have arrived.
pub(super) fn initialise(device: &Device, ranks: i32, id: ncclUniqueId, rank: i32) -> Result<ncclComm_t> {
    let table = libraries::rccl(device)?;
    device.select()?;
    let mut raw = ptr::null_mut();
    // SAFETY: the call writes one handle.
    let made = unsafe { call!(device, table.ncclCommInitRank(&mut raw, ranks, id, rank)) };
    // SAFETY: without a communicator this returns the last error of the process.
    made.map_err(|error| unsafe { with_last_error(table, ptr::null_mut(), error) })?;
    Ok(raw)
}

/// Adds RCCL's explanation to an error.
///
/// # Safety
///
/// `raw` must be null or a communicator.
unsafe fn with_last_error(table: &Rccl, raw: ncclComm_t, mut error: Error) -> Error {
    if let Error::Device { advice, .. } = &mut error {
        // SAFETY: guaranteed by the caller. The call returns a C string, which is copied at once.
        if let Ok(text) = unsafe { table.ncclGetLastError(raw) }
            && !text.is_null()
        {
            // SAFETY: as above.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if !text.is_empty() {
                *advice = text;
            }
        }
    }
    error
}

impl Inner {
    pub(super) fn usable(&self) -> Result<()> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.error());
        }
        if self.aborted.load(Ordering::Acquire) {
            Err(Error::argument("communicator", "was aborted"))
        } else {
            Ok(())
        }
    }

    /// Records the side stream of the rank's collectives.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if its main stream is not the rank's, or if the rank has another one.
    pub(super) fn use_side(&self, side: &SideStream) -> Result<()> {
        let known = self.side.get_or_init(|| side.clone());
        if *side.main() != self.stream || known.side() != side.side() {
            let reason =
                "is not the one of the rank, which has one for all collectives, beside its own stream";
            return Err(Error::argument("side stream", reason));
        }
        Ok(())
    }

    /// Records an event after all submitted work of the rank, for an internal thread: a parked error stays parked.
    pub(super) fn mark_end(&self) -> Result<Event> {
        let end = self.stream.mark_quietly()?;
        match self.side.get() {
            // Later collectives come after later work of the main stream, so this delays none.
            Some(side) => {
                side.side().wait_quietly(&end)?;
                side.side().mark_quietly()
            }
            None => Ok(end),
        }
    }

    /// Adds RCCL's explanation to an error. The caller holds `calls`, or is the rank's only owner.
    pub(super) fn explained(&self, error: Error) -> Error {
        match libraries::rccl(self.stream.device()) {
            // SAFETY: the handle is alive until it is aborted, which takes `calls`.
            Ok(table) if !self.aborted.load(Ordering::Acquire) => unsafe {
                with_last_error(table, self.raw, error)
            },
            _ => error,
        }
    }

    /// Returns true if nothing is left to watch.
    pub(super) fn is_over(&self) -> bool {
        self.failure.get().is_some() || self.aborted.load(Ordering::Acquire)
    }

    /// Returns true once, if a failure was found and the rank must be aborted.
    pub(super) fn must_abort(&self) -> bool {
        self.failure.get().is_some()
            && !self.aborted.load(Ordering::Acquire)
            && !self.aborting.swap(true, Ordering::AcqRel)
    }

    /// Records why the rank is aborted. Its stream returns this reason from now on.
    pub(super) fn fail(&self, reason: String) {
        let failure = CommunicatorFailure {
            device: self.stream.device().name().to_owned(),
            rank: self.rank,
            ranks: self.ranks,
            reason,
        };
        if self.failure.set(failure.clone()).is_ok() {
            self.stream.fail(failure);
        }
    }

    /// Returns the error that RCCL found, if any. `None` while a call into RCCL is running.
    pub(super) fn asynchronous_error(&self) -> Option<String> {
        let _alone = self.calls.try_write()?;
        if self.aborted.load(Ordering::Acquire) {
            return None;
        }
        let device = self.stream.device();
        let table = libraries::rccl(device).ok()?;
        let mut state = ncclResult_t::ncclSuccess;
        // SAFETY: the handle is alive; the call writes one status.
        unsafe { call!(device, table.ncclCommGetAsyncError(self.raw, &mut state)) }.ok()?;
        if matches!(state, ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress) {
            return None;
        }
        let error = check(device.name(), "ncclCommGetAsyncError", Ok(state)).err()?;
        match self.explained(error) {
            Error::Device { status, advice, .. } if advice.is_empty() => Some(status),
            Error::Device { status, advice, .. } => Some(format!("{advice} ({status})")),
            error => Some(error.to_string()),
        }
    }

    pub(super) fn abort(&self) -> Result<()> {
        let device = self.stream.device();
        let table = libraries::rccl(device)?;
        device.select()?;
        let _alone = self.calls.write();
        if self.aborted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the handle is alive and destroyed here. It is not used once `aborted` is set.
        unsafe { call!(device, table.ncclCommAbort(self.raw)) }
    }

    /// Waits until the stream is idle. The watchdog no longer watches a rank that is being dropped.
    fn drain(&self) -> Result<()> {
        let device = self.stream.device();
        let done = self.mark_end()?;
        let begun = Instant::now();
        while !done.poll()? {
            let elapsed = begun.elapsed();
            if let Some(reason) = self.asynchronous_error() {
                self.fail(reason);
            } else if self.timeout.is_some_and(|timeout| elapsed > timeout) {
                self.fail(format!(
                    "its last collectives did not end within {} s",
                    elapsed.as_secs_f64()
                ));
            }
            if self.failure.get().is_some() {
                // The stream returns the reason to threads that wait for its results.
                return self.abort();
            }
            // Most waits are short.
            if elapsed < Duration::from_millis(1) {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(200));
            }
        }
        device.select().map(drop)
    }
}

impl Resource for Inner {
    fn used(&self, _submission: u64) {
        if !self.stream.is_capturing() {
            self.progress.submit();
        }
    }

    fn hold(&self) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        // A graph may use the rank several times.
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
        let result = libraries::rccl(device).and_then(|table| {
            device.select()?;
            // SAFETY: the handles are alive; the rank is destroyed once, here. A thread that panics may have omitted a collective, for
            // which other ranks would wait.
            unsafe {
                if thread::panicking() {
                    return call!(device, table.ncclCommAbort(self.raw));
                }
                if self.failure.get().is_some() {
                    // The stream has returned the reason.
                    return self.abort();
                }
                let idle = self.drain();
                if self.aborted.load(Ordering::Acquire) {
                    return idle;
                }
                idle.and(call!(device, table.ncclCommDestroy(self.raw)))
            }
        });
        device.park(result);
    }
}
