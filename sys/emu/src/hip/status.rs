//! The thread's last error, the errors' names, and the versions.

use std::ffi::c_char;

use hip_provider::hip::put;
use hipvit_sys::hip::{HIP_VERSION, hipError_t, prototypes};

hip_provider::shared_hip!();

/// Returns the name: there are no descriptions.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(error: hipError_t) -> *const c_char {
    hipGetErrorName(error)
}
const _: prototypes::hipGetErrorString = hipGetErrorString;

/// Exports functions of HIP.
macro_rules! hip {
    ($($functions:tt)*) => {
        hip_provider::export! { hip, hipvit_sys::hip::hipError_t, $crate::hip::status::run; $($functions)* }
    };
}
pub(super) use hip;

hip! {
    /// The version of the runtime, as in AMD's.
    fn hipDriverGetVersion(version: *mut i32) {
        put(version, HIP_VERSION as i32)
    }

    /// The version of HIP's headers.
    fn hipRuntimeGetVersion(version: *mut i32) {
        put(version, HIP_VERSION as i32)
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
