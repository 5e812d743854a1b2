//! The thread's last error, the errors' names, and the versions.

use std::ffi::c_char;

use hipvit_sys::Status as _;
use hipvit_sys::hip::{self, hipError_t};

use super::hip;

hipvit_sys::last_error!();

/// The same as the name.
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

    /// The version of the runtime, as in AMD's.
    fn hipDriverGetVersion(version: *mut i32) {
        super::put(version, hip::HIP_VERSION as i32)
    }

    /// The version of HIP's headers.
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
        let status = run(|| std::panic::resume_unwind(Box::new("a test")));
        assert_eq!(status, hipError_t::hipErrorUnknown);
        assert_eq!(hipPeekAtLastError(), hipError_t::hipErrorUnknown);
        assert_eq!(hipGetLastError(), hipError_t::hipErrorUnknown);
        assert_eq!(hipGetLastError(), hipError_t::hipSuccess);
    }
}
