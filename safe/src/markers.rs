//! Named ranges on the timeline of a profiler, by roctx, or NVTX with a provider for CUDA.

use std::env;
use std::ffi::CString;
use std::fmt;

use hipvit_sys::{Roctx, Table};

use crate::error::Result;
use crate::runtime::Runtime;
use crate::status::missing;

/// Environment variables that profilers set in the processes they start, with the profiler.
const PROFILERS: [(&str, &str); 6] = [
    ("ROCP_TOOL_LIBRARIES", "rocprofiler-sdk"),
    ("ROCP_TOOL_LIB", "rocprofiler"),
    ("HSA_TOOLS_LIB", "rocprofiler"),
    ("ROCPROFSYS_MODE", "rocprof-sys"),
    ("NVTX_INJECTION64_PATH", "an NVTX tool"),
    ("CUDA_INJECTION64_PATH", "a CUDA tool"),
];

/// Parts of a preloaded library's name that identify a profiler.
const PRELOADED: [&str; 3] = ["rocprofiler", "roctracer", "rocprof-sys"];

/// Ranges and marks for a profiler. Without a profiler, each costs a call of a few nanoseconds.
///
/// A range belongs to the thread that begins it. The ranges of a thread nest, and [`end`](Self::end) ends the innermost.
#[derive(Clone)]
pub struct Markers {
    roctx: Roctx,
}

impl Markers {
    /// Opens the functions of the provider's library.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`](crate::Error::Provider) if the library does not exist. The message names all files that were tried.
    pub fn open() -> Result<Self> {
        let runtime = Runtime::open()?;
        let roctx = runtime.provider().roctx().map_err(|error| missing(&error))?;
        Ok(Self { roctx: roctx.clone() })
    }

    /// Begins a range on this thread.
    pub fn begin(&self, name: &str) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the message is a C string, which the call copies. It returns the depth of the range.
        let _ = unsafe { self.roctx.roctxRangePushA(name.as_ptr()) };
    }

    /// Ends the innermost range of this thread.
    pub fn end(&self) {
        // SAFETY: no arguments. Without a range the call has no effect.
        let _ = unsafe { self.roctx.roctxRangePop() };
    }

    /// Marks this moment on this thread.
    pub fn mark(&self, name: &str) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the message is a C string, which the call copies.
        let _ = unsafe { self.roctx.roctxMarkA(name.as_ptr()) };
    }

    /// Returns the profiler that started this process, according to the environment. rocprofv3, rocprof, rocprof-sys and Nsight set
    /// variables or preload a library. A profiler that was attached later is not detected.
    #[must_use]
    pub fn profiler() -> Option<String> {
        profiler(|name| env::var(name).ok())
    }
}

fn profiler(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |&(name, tool): &(&str, &str)| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some(format!("{tool} ({name}={value})"))
    };
    let preloaded = || {
        let list = variable("LD_PRELOAD")?;
        let library = list
            .split([':', ' '])
            .find(|library| PRELOADED.iter().any(|name| library.contains(name)))?;
        Some(format!("LD_PRELOAD={library}"))
    };
    PROFILERS.iter().find_map(set).or_else(preloaded)
}

impl fmt::Debug for Markers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Markers")
            .field("path", &self.roctx.path())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::profiler;

    #[test]
    fn profilers_are_recognised_by_what_they_set() {
        let of = |set: &'static [(&str, &str)]| {
            profiler(|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(
            of(&[("ROCP_TOOL_LIBRARIES", ""), ("LD_PRELOAD", "libjemalloc.so")]),
            None
        );
        let found = of(&[("ROCP_TOOL_LIBRARIES", "/opt/rocm/lib/tool.so")]).unwrap_or_default();
        assert!(found.starts_with("rocprofiler-sdk ("), "{found}");
        let preload = "/usr/lib/libjemalloc.so:/opt/rocm/lib/librocprofiler-sdk-tool.so";
        let found = profiler(|name| (name == "LD_PRELOAD").then(|| preload.to_owned()));
        assert_eq!(
            found.as_deref(),
            Some("LD_PRELOAD=/opt/rocm/lib/librocprofiler-sdk-tool.so")
        );
        assert!(of(&[("NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")]).is_some());
    }
}
