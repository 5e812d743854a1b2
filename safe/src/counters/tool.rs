//! This process's part in rocprofiler-sdk, which its callbacks and its users share.

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

/// This process's part in rocprofiler-sdk, which accepts one. It stays, as the library's threads may call back until the end.
pub(super) static TOOL: OnceLock<Tool> = OnceLock::new();

pub(super) struct Tool {
    pub(super) sdk: Rocprofiler,
    pub(super) state: Mutex<State>,
    pub(super) recorded: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Result of the setup; `None` until the library asks for it.
    pub(super) context: Option<Result<rocprofiler_context_id_t>>,
    /// The kernels' names by their number.
    pub(super) names: BTreeMap<u64, String>,
    pub(super) passes: u64,
    pub(super) pass: Option<Pass>,
}

/// A run of the work.
#[derive(Default)]
pub(super) struct Pass {
    /// From 1, so that it is never that of a launch which was not to be counted.
    pub(super) number: u64,
    /// The agent and what to count on it.
    pub(super) config: Option<(rocprofiler_agent_id_t, rocprofiler_counter_config_id_t)>,
    pub(super) launches: Vec<Launch>,
    /// The counts of each launch, by the launch's and the counter's number.
    pub(super) records: BTreeMap<u64, BTreeMap<u64, f64>>,
}

pub(super) struct Launch {
    pub(super) number: u64,
    pub(super) agent: u64,
    pub(super) kernel: u64,
}

impl Pass {
    /// The one that all launches were on.
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
    /// The kernel's name, or its number if the library did not report a name.
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

/// A C string's text; `None` of null.
///
/// # Safety
/// The pointer is null or a C string's.
pub(super) unsafe fn text(chars: *const c_char) -> Option<String> {
    // SAFETY: a C string's, says the caller.
    let text = (!chars.is_null()).then(|| unsafe { CStr::from_ptr(chars) })?;
    Some(text.to_string_lossy().into_owned())
}
