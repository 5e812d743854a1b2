//! This process's tool for rocprofiler-sdk, shared by the callbacks and their users.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::sync::OnceLock;

use hipvit_sys::Rocprofiler;
use hipvit_sys::rocprofiler::{
    rocprofiler_agent_id_t, rocprofiler_context_id_t, rocprofiler_counter_config_id_t, rocprofiler_status_t,
};
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::status;

const LIBRARY: &str = "rocprofiler-sdk";

/// This process's tool. rocprofiler-sdk accepts one. It is static, because the library's threads may call back until the process ends.
pub(super) static TOOL: OnceLock<Tool> = OnceLock::new();

pub(super) struct Tool {
    pub(super) sdk: Rocprofiler,
    pub(super) state: Mutex<State>,
    pub(super) recorded: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Result of the setup. `None` until the library requests it.
    pub(super) context: Option<Result<rocprofiler_context_id_t>>,
    /// Kernel names by their number.
    pub(super) names: BTreeMap<u64, String>,
    pub(super) passes: u64,
    pub(super) pass: Option<Pass>,
}

/// One run of the work.
#[derive(Default)]
pub(super) struct Pass {
    /// Counted from 1, so that it never equals the number of an uncounted launch.
    pub(super) number: u64,
    /// The agent, and what it counts.
    pub(super) config: Option<(rocprofiler_agent_id_t, rocprofiler_counter_config_id_t)>,
    pub(super) launches: Vec<Launch>,
    /// Counts of each launch, by the numbers of launch and counter.
    pub(super) records: BTreeMap<u64, BTreeMap<u64, f64>>,
}

pub(super) struct Launch {
    pub(super) number: u64,
    pub(super) agent: u64,
    pub(super) kernel: u64,
}

impl Pass {
    /// Returns the agent of all launches.
    pub(super) fn agent(&self) -> Result<rocprofiler_agent_id_t> {
        let Some(first) = self.launches.first() else {
            return Err(failed(
                "saw no launch of a kernel: the HIP runtime was initialised before, or does not know of profilers",
            ));
        };
        if self.launches.iter().any(|launch| launch.agent != first.agent) {
            return Err(failed(
                "saw launches on several GPUs; counters are counted on one",
            ));
        }
        Ok(rocprofiler_agent_id_t { handle: first.agent })
    }
}

impl State {
    /// Returns the kernel's name, or its number if the library reported no name.
    pub(super) fn name(&self, kernel: u64) -> String {
        let known = self.names.get(&kernel).cloned();
        known.unwrap_or_else(|| format!("kernel {kernel}"))
    }
}

pub(super) fn failed(reason: impl fmt::Display) -> Error {
    Error::Provider {
        reason: format!("{LIBRARY} {reason}"),
        tried: String::new(),
    }
}

pub(super) fn check(
    call: &'static str,
    returned: Result<rocprofiler_status_t, hipvit_sys::Error>,
) -> Result<()> {
    status::check(LIBRARY, call, returned)
}

/// Returns the text of a C string. `None` for null.
///
/// # Safety
///
/// The pointer must be null or a C string.
pub(super) unsafe fn text(chars: *const c_char) -> Option<String> {
    // SAFETY: a C string, as the caller guarantees.
    let text = (!chars.is_null()).then(|| unsafe { CStr::from_ptr(chars) })?;
    Some(text.to_string_lossy().into_owned())
}
