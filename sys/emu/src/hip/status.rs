//! The thread's last error, the errors' names, and the versions.

use std::cell::Cell;
use std::ffi::c_char;

use hipvit_sys::Status as _;
use hipvit_sys::export::{c_name, caught};
use hipvit_sys::hip::{self, hipError_t};

use super::hip;

thread_local! {
    static LAST: Cell<hipError_t> = const { Cell::new(hipError_t::hipSuccess) };
}

/// Runs an exported function and remembers its error for `hipGetLastError`. That something is not ready is an answer,
/// not an error.
pub(super) fn run(body: impl FnOnce() -> Result<(), hipError_t>) -> hipError_t {
    let status = caught(hipError_t::hipSuccess, hipError_t::hipErrorUnknown, body);
    if !status.is_success() && status != hipError_t::hipErrorNotReady {
        LAST.set(status);
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn hipGetLastError() -> hipError_t {
    LAST.replace(hipError_t::hipSuccess)
}
const _: hip::prototypes::hipGetLastError = hipGetLastError;

#[unsafe(no_mangle)]
extern "C" fn hipExtGetLastError() -> hipError_t {
    LAST.replace(hipError_t::hipSuccess)
}
const _: hip::prototypes::hipExtGetLastError = hipExtGetLastError;

#[unsafe(no_mangle)]
extern "C" fn hipPeekAtLastError() -> hipError_t {
    LAST.get()
}
const _: hip::prototypes::hipPeekAtLastError = hipPeekAtLastError;

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(error: hipError_t) -> *const c_char {
    c_name(error.name().unwrap_or("hipErrorUnknown"))
}
const _: hip::prototypes::hipGetErrorName = hipGetErrorName;

/// The same as the name, which says it.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(error: hipError_t) -> *const c_char {
    hipGetErrorName(error)
}
const _: hip::prototypes::hipGetErrorString = hipGetErrorString;

hip! {
    fn hipDrvGetErrorName(error: hipError_t, text: *mut *const c_char) {
        if text.is_null() || error.name().is_none() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        text.write(hipGetErrorName(error));
        Ok(())
    }

    fn hipDrvGetErrorString(error: hipError_t, text: *mut *const c_char) {
        if text.is_null() || error.name().is_none() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        text.write(hipGetErrorString(error));
        Ok(())
    }

    /// As on AMD's, the version of the runtime.
    fn hipDriverGetVersion(version: *mut i32) {
        super::put(version, hip::HIP_VERSION as i32)
    }

    /// The HIP whose headers the interface is taken from.
    fn hipRuntimeGetVersion(version: *mut i32) {
        super::put(version, hip::HIP_VERSION as i32)
    }

    fn hipProfilerStart() {
        Err(hipError_t::hipErrorNotSupported)
    }

    fn hipProfilerStop() {
        Err(hipError_t::hipErrorNotSupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status() {
        let status = run(|| std::panic::resume_unwind(Box::new("on purpose")));
        assert_eq!(status, hipError_t::hipErrorUnknown);
        assert_eq!(hipPeekAtLastError(), hipError_t::hipErrorUnknown);
        assert_eq!(hipGetLastError(), hipError_t::hipErrorUnknown);
        assert_eq!(hipGetLastError(), hipError_t::hipSuccess);
    }
}
