//! Calls that active captures forbid: those that wait or allocate, on the threads that the captures' modes say.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use hipvit_sys::hip::{hipError_t, hipStreamCaptureMode};

use super::hip;

/// An active capture's mode and thread, and whether it is still valid.
#[derive(Debug)]
pub(super) struct Restriction {
    mode: hipStreamCaptureMode,
    thread: ThreadId,
    invalid: AtomicBool,
}

static ACTIVE: Mutex<Vec<Arc<Restriction>>> = Mutex::new(Vec::new());

thread_local! {
    /// Captures that forbid this thread to wait: those of all threads, its own, or none.
    static MODE: Cell<hipStreamCaptureMode> = const { Cell::new(hipStreamCaptureMode::hipStreamCaptureModeGlobal) };
}

fn active() -> MutexGuard<'static, Vec<Arc<Restriction>>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error for a number that is no mode.
pub(super) fn check(mode: hipStreamCaptureMode) -> Result<(), hipError_t> {
    if mode.0 > hipStreamCaptureMode::hipStreamCaptureModeRelaxed.0 {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    Ok(())
}

impl Restriction {
    /// Begins one of this thread.
    pub(super) fn begin(mode: hipStreamCaptureMode) -> Arc<Self> {
        let restriction = Arc::new(Self {
            mode,
            thread: thread::current().id(),
            invalid: AtomicBool::new(false),
        });
        active().push(restriction.clone());
        restriction
    }

    pub(super) fn end(self: &Arc<Self>) {
        active().retain(|other| !Arc::ptr_eq(other, self));
    }

    /// An error on a thread that may not end the capture.
    pub(super) fn check_thread(&self) -> Result<(), hipError_t> {
        let relaxed = self.mode == hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
        if !relaxed && self.thread != thread::current().id() {
            return Err(hipError_t::hipErrorStreamCaptureWrongThread);
        }
        Ok(())
    }

    pub(super) fn invalidate(&self) {
        self.invalid.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Relaxed)
    }

    /// True if this thread may not call functions that wait or allocate.
    fn forbids(&self) -> bool {
        let own = self.thread == thread::current().id();
        match MODE.get() {
            _ if self.mode == hipStreamCaptureMode::hipStreamCaptureModeRelaxed => false,
            hipStreamCaptureMode::hipStreamCaptureModeRelaxed => false,
            hipStreamCaptureMode::hipStreamCaptureModeThreadLocal => own,
            _ => own || self.mode == hipStreamCaptureMode::hipStreamCaptureModeGlobal,
        }
    }
}

/// Returns an error, and invalidates the capture, if an active capture forbids calls that wait for the device or allocate.
pub(super) fn forbid_waiting() -> Result<(), hipError_t> {
    let active = active();
    let mut forbidding = active.iter().filter(|capture| capture.forbids()).peekable();
    if forbidding.peek().is_none() {
        return Ok(());
    }
    forbidding.for_each(|capture| capture.invalidate());
    Err(hipError_t::hipErrorStreamCaptureUnsupported)
}

hip! {
    fn hipThreadExchangeStreamCaptureMode(mode: *mut hipStreamCaptureMode) {
        let wanted = mode.as_mut().ok_or(hipError_t::hipErrorInvalidValue)?;
        check(*wanted)?;
        *wanted = MODE.replace(*wanted);
        Ok(())
    }
}
