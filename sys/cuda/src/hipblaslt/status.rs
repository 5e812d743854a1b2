//! Statuses of cuBLASLt as hipBLASLt's.

use hip_provider::hipblaslt::run;
use hipvit_sys::hipblaslt::hipblasStatus_t;

use crate::hip::bound;
use crate::library::Missing;

/// hipBLASLt's status for cuBLASLt's.
pub(super) fn translate(status: u32) -> hipblasStatus_t {
    match status {
        0 => hipblasStatus_t::HIPBLAS_STATUS_SUCCESS,
        1 => hipblasStatus_t::HIPBLAS_STATUS_NOT_INITIALIZED,
        3 => hipblasStatus_t::HIPBLAS_STATUS_ALLOC_FAILED,
        7 => hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE,
        8 => hipblasStatus_t::HIPBLAS_STATUS_ARCH_MISMATCH,
        11 => hipblasStatus_t::HIPBLAS_STATUS_MAPPING_ERROR,
        13 => hipblasStatus_t::HIPBLAS_STATUS_EXECUTION_FAILED,
        14 => hipblasStatus_t::HIPBLAS_STATUS_INTERNAL_ERROR,
        15 => hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED,
        _ => hipblasStatus_t::HIPBLAS_STATUS_UNKNOWN,
    }
}

/// The result of a call of cuBLASLt.
pub(super) fn check(called: Result<u32, Missing>) -> Result<(), hipblasStatus_t> {
    match called {
        Ok(0) => Ok(()),
        Ok(status) => Err(translate(status)),
        Err(Missing::Library) => Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_INITIALIZED),
        Err(Missing::Function) => Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED),
    }
}

/// Runs an exported function that works on the thread's device.
pub(super) fn on_device(body: impl FnOnce() -> Result<(), hipblasStatus_t>) -> hipblasStatus_t {
    run(|| {
        bound().map_err(|_| hipblasStatus_t::HIPBLAS_STATUS_NOT_INITIALIZED)?;
        body()
    })
}

/// Calls a function of cuBLASLt: `Ok(())`, or hipBLASLt's status for cuBLASLt's. Use it inside an unsafe block.
macro_rules! lt {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::hipblaslt::status::check($crate::library::call!(CUBLASLT, cublaslt, $function($($argument),*)))
    };
}
pub(super) use lt;
