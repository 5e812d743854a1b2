//! The driver's statuses as HIP's, the thread's last error, and the errors' names.

use std::ffi::c_char;
use std::ptr;

use hipvit_sys::Status as _;
use hipvit_sys::hip::{self, hipError_t};

use crate::library::{Missing, call};

/// HIP's status for the driver's. Most have the same value.
fn translate(status: u32) -> hipError_t {
    match status {
        // No usable device: CUDA's stub library, a device in exclusive use or without a licence.
        34 | 46 | 102 => hipError_t::hipErrorNoDevice,
        // An uncorrectable NVLink error, a contained error.
        220 | 226 => hipError_t::hipErrorECCNotCorrectable,
        // No PTX compiler, or PTX of an unknown version or for an unknown architecture.
        221..=223 => hipError_t::hipErrorNoBinaryForGpu,
        // Stack error, illegal instruction, misaligned address, wrong address space, invalid program counter.
        714..=718 => hipError_t::hipErrorLaunchFailure,
        800 => hipError_t::hipErrorInvalidValue,
        802 => hipError_t::hipErrorNotInitialized,
        803 | 804 => hipError_t::hipErrorInsufficientDriver,
        909 => hipError_t::hipErrorLaunchTimeOut,
        same if hipError_t(same).name().is_some() => hipError_t(same),
        _ => hipError_t::hipErrorUnknown,
    }
}

/// The result of a driver call.
pub(crate) fn check(called: Result<u32, Missing>) -> Result<(), hipError_t> {
    match called {
        Ok(0) => Ok(()),
        Ok(status) => Err(translate(status)),
        Err(Missing::Library) => Err(hipError_t::hipErrorNoDevice),
        Err(Missing::Function) => Err(hipError_t::hipErrorNotSupported),
    }
}

/// Calls a function of the driver: `Ok(())`, or HIP's status for the driver's.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::hip::check($crate::library::call!(CUDA, driver, $function($($argument),*)))
    };
}
pub(crate) use cu;

hip_provider::shared_hip!();

/// Exports HIP functions that need no context.
macro_rules! hip_without_context {
    ($($functions:tt)*) => {
        hip_provider::export! { hip, hipvit_sys::hip::hipError_t, $crate::hip::status::run; $($functions)* }
    };
}
pub(super) use hip_without_context;

/// The driver's description if it knows the status, else the name.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(error: hipError_t) -> *const c_char {
    let mut text = ptr::null();
    // Not as a CUresult, which may hold known values only: the value is passed to the C function unchanged.
    // SAFETY: `text` is a pointer that the call may write.
    let found = unsafe { call!(CUDA, driver, cuGetErrorString(error.0, &mut text)) };
    if found == Ok(0) && !text.is_null() {
        text
    } else {
        hipGetErrorName(error)
    }
}
const _: hip::prototypes::hipGetErrorString = hipGetErrorString;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_keep_their_meaning() {
        for (cuda, hip) in [
            (1, hipError_t::hipErrorInvalidValue),
            (2, hipError_t::hipErrorOutOfMemory),
            (100, hipError_t::hipErrorNoDevice),
            (209, hipError_t::hipErrorNoBinaryForGpu),
            (500, hipError_t::hipErrorNotFound),
            (600, hipError_t::hipErrorNotReady),
            (700, hipError_t::hipErrorIllegalAddress),
            (716, hipError_t::hipErrorLaunchFailure),
            (719, hipError_t::hipErrorLaunchFailure),
            (801, hipError_t::hipErrorNotSupported),
            (900, hipError_t::hipErrorStreamCaptureUnsupported),
            (12345, hipError_t::hipErrorUnknown),
        ] {
            assert_eq!(check(Ok(cuda)), Err(hip), "{cuda}");
        }
        assert_eq!(check(Ok(0)), Ok(()));
    }

    #[test]
    fn a_panic_is_a_status() {
        let status = run(|| std::panic::resume_unwind(Box::new("on purpose")));
        assert_eq!(status, hipError_t::hipErrorUnknown);
        assert_eq!(hipGetLastError(), hipError_t::hipErrorUnknown);
        assert_eq!(hipGetLastError(), hipError_t::hipSuccess);
    }
}
