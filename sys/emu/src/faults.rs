//! What went wrong on a device: reported once in full on stderr and in `HIP_EMU_LOG`, and kept for `hip_emu_last_fault`.
//! And faults on purpose, counted down.

use std::ffi::{CString, c_char};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use gcnrun::{Fault, FaultKind, MemoryError};
use hipvit_sys::hip::hipError_t;

/// Which of the chances for a fault on purpose is taken, counted from 1; `None` for none.
pub(crate) type Nth = Option<u64>;

/// Why a piece of work failed: the status that the program gets, and the report for the one who looks for the reason.
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

/// As an AMD GPU does: what the memory unit finds is an illegal address, almost everything else an unspecified failure.
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

/// Adds reports to this file, too (`HIP_EMU_LOG`).
pub(crate) fn log_to(file: Option<PathBuf>) {
    let _ = LOG.set(file);
}

/// Tells whoever looks: stderr, the log file, `hip_emu_last_fault`.
pub(crate) fn report(device: u32, work: &str, failure: &Failure) {
    let text = format!(
        "hip-emu: device {device}: {work}: {} ({})",
        failure.report, failure.status
    );
    eprintln!("{text}");
    if let Some(Some(log)) = LOG.get() {
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .and_then(|mut file| writeln!(file, "{text}"));
        if let Err(error) = written {
            eprintln!("hip-emu: HIP_EMU_LOG={}: {error}", log.display());
        }
    }
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

/// The report of the last fault, which is a C string until the next call of this function on any thread; null if there
/// was none.
#[unsafe(no_mangle)]
extern "C" fn hip_emu_last_fault() -> *const c_char {
    static SHOWN: Mutex<Option<CString>> = Mutex::new(None);
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    shown.clone_from(&last);
    shown.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

/// Counts the chances for one fault on purpose.
#[derive(Debug, Default)]
pub(crate) struct Chances(AtomicU64);

impl Chances {
    /// Counts one more; whether it is the one that shall fail.
    pub(crate) fn due(&self, nth: Nth) -> bool {
        let now = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        nth == Some(now)
    }
}
