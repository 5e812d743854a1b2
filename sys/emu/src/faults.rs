//! Failures of devices, reported on stderr and in `HIP_EMU_LOG`, and kept for `hip_emu_last_fault`; and the counters of
//! injected faults.

use std::ffi::{CString, c_char};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{fmt, io, ptr};

use gcnrun::{Fault, FaultKind, MemoryError};
use hipvit_sys::hip::hipError_t;

/// The occurrence of an operation that fails, counted from 1; `None` for none.
pub(crate) type Nth = Option<u64>;

/// A failure: the status that the program gets, and the text of the report.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: hipError_t,
    pub(crate) report: String,
}

impl Failure {
    pub(crate) fn new(status: hipError_t, report: impl Into<String>) -> Self {
        Self {
            status,
            report: report.into(),
        }
    }
}

impl From<hipError_t> for Failure {
    fn from(status: hipError_t) -> Self {
        Self::new(status, status.to_string())
    }
}

/// The status that an AMD GPU gives: illegal address for memory faults, an unspecified failure for almost everything else.
fn status(kind: &FaultKind) -> hipError_t {
    match kind {
        FaultKind::OutOfBounds { .. } | FaultKind::UseAfterFree { .. } | FaultKind::NoPeerAccess { .. } => {
            hipError_t::hipErrorIllegalAddress
        }
        FaultKind::Trap { .. } => hipError_t::hipErrorAssert,
        FaultKind::Timeout { .. } => hipError_t::hipErrorLaunchTimeOut,
        _ => hipError_t::hipErrorLaunchFailure,
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::new(status(&fault.kind), fault.to_string())
    }
}

impl From<FaultKind> for Failure {
    fn from(kind: FaultKind) -> Self {
        Self::new(status(&kind), kind.to_string())
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        Self::new(hipError_t::hipErrorIllegalAddress, error.to_string())
    }
}

static LAST: Mutex<Option<CString>> = Mutex::new(None);
static LOG: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Makes reports go to this file (`HIP_EMU_LOG`) too.
pub(crate) fn log_to(file: Option<PathBuf>) {
    let _ = LOG.set(file);
}

/// A line of the emulator on stderr.
pub(crate) fn say(what: impl fmt::Display) {
    print(&format!("hip-emu: {what}"));
}

/// Unlike `eprintln!` it does not panic, and so abort the program, where stderr cannot be written.
fn print(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Reports a failure: on stderr, in the log file, and for `hip_emu_last_fault`.
pub(crate) fn report(device: u32, work: &str, failure: &Failure) {
    let text = format!(
        "hip-emu: device {device}: {work}: {} ({})",
        failure.report, failure.status
    );
    publish(&text);
}

/// Puts a report on stderr, into the log file, and where `hip_emu_last_fault` finds it.
pub(crate) fn publish(text: &str) {
    print(text);
    if let Some(Some(log)) = LOG.get() {
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .and_then(|mut file| writeln!(file, "{text}"));
        if let Err(error) = written {
            say(format_args!("HIP_EMU_LOG={}: {error}", log.display()));
        }
    }
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

/// Returns the report of the last fault, or null if there was none. The C string is valid until the next call of this function on
/// any thread.
#[unsafe(no_mangle)]
extern "C" fn hip_emu_last_fault() -> *const c_char {
    static SHOWN: Mutex<Option<CString>> = Mutex::new(None);
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    shown.clone_from(&last);
    shown.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

/// Counts the occurrences of an operation. One of them may be set to fail.
#[derive(Debug, Default)]
pub(crate) struct FaultCounter(AtomicU64);

impl FaultCounter {
    /// Counts an occurrence; whether it has to fail.
    pub(crate) fn fires(&self, nth: Nth) -> bool {
        let now = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        nth == Some(now)
    }
}
