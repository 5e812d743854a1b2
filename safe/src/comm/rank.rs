//! A rank's handle: its calls, its failures, its end.

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
use crate::device::Device;
use crate::error::{Error, Result};
use crate::libraries;
use crate::status::{call, check};
use crate::stream::{Resource, Stream};
use crate::stream_failure::CommunicatorFailure;

pub(crate) struct Inner {
    pub(super) stream: Stream,
    pub(super) raw: ncclComm_t,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) aborted: AtomicBool,
    /// Reason for which the watchdog has to abort the rank, or has aborted it.
    pub(super) failure: OnceLock<CommunicatorFailure>,
    /// True once the watchdog has begun to abort the rank.
    pub(super) aborting: AtomicBool,
    /// Time limit for collectives.
    pub(super) timeout: Option<Duration>,
    pub(super) progress: Progress,
    /// Written while RCCL is called, which takes one call at a time; read while a graph is launched that uses the rank.
    pub(super) calls: RwLock<()>,
}

// SAFETY: RCCL's functions take the handle from any thread, one at a time, which `calls` sees to; it ends once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A handle on its way from the thread that waited for it.
pub(super) struct Raw(pub(super) ncclComm_t);

// SAFETY: RCCL's functions take the handle from any thread.
unsafe impl Send for Raw {}

/// A rank, once all others have come.
pub(super) fn initialise(device: &Device, ranks: i32, id: ncclUniqueId, rank: i32) -> Result<ncclComm_t> {
    let table = libraries::rccl(device)?;
    device.select()?;
    let mut raw = ptr::null_mut();
    // SAFETY: the call writes one handle.
    let made = unsafe { call!(device, table.ncclCommInitRank(&mut raw, ranks, id, rank)) };
    // SAFETY: without a communicator it is the process's last error.
    made.map_err(|error| unsafe { with_last_error(table, ptr::null_mut(), error) })?;
    Ok(raw)
}

/// Adds RCCL's own explanation.
///
/// # Safety
///
/// `raw` is null or a communicator.
unsafe fn with_last_error(table: &Rccl, raw: ncclComm_t, mut error: Error) -> Error {
    if let Error::Device { advice, .. } = &mut error {
        // SAFETY: as the caller says; the call returns a C string, which is copied at once.
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

    /// Adds RCCL's own explanation to an error. The caller holds `calls`, or is the rank's only owner.
    pub(super) fn explained(&self, error: Error) -> Error {
        match libraries::rccl(self.stream.device()) {
            // SAFETY: the handle lives while it is not aborted, which takes `calls`.
            Ok(table) if !self.aborted.load(Ordering::Acquire) => unsafe {
                with_last_error(table, self.raw, error)
            },
            _ => error,
        }
    }

    /// True if nothing is left to watch.
    pub(super) fn is_over(&self) -> bool {
        self.failure.get().is_some() || self.aborted.load(Ordering::Acquire)
    }

    /// Returns true once, if a failure was found and the rank is to be aborted.
    pub(super) fn must_abort(&self) -> bool {
        self.failure.get().is_some()
            && !self.aborted.load(Ordering::Acquire)
            && !self.aborting.swap(true, Ordering::AcqRel)
    }

    /// Records why the rank is to be aborted; its stream returns that from now on.
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
        // SAFETY: the handle lives; the call writes one status.
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
        // SAFETY: the handle lives, and ends here: nothing uses it once `aborted` is set.
        unsafe { call!(device, table.ncclCommAbort(self.raw)) }
    }

    /// Waits until the stream is idle; the watchdog no longer sees a rank that is being dropped.
    fn drain(&self) -> Result<()> {
        let device = self.stream.device();
        let done = self.stream.mark_quietly()?;
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
            // Short waits are the rule.
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
        // A graph may use it several times.
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
            // SAFETY: the handles live; the rank ends once, here. A thread that panics may have left out a collective that
            // other ranks wait for, and would wait for them.
            unsafe {
                if thread::panicking() {
                    return call!(device, table.ncclCommAbort(self.raw));
                }
                if self.failure.get().is_some() {
                    // The stream has told why.
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
