//! Statuses of hipSPARSELt.

use hipvit_sys::hip::hipError_t;
use hipvit_sys::hipsparselt::hipsparseStatus_t;

pub(super) const INVALID: hipsparseStatus_t = hipsparseStatus_t::HIPSPARSE_STATUS_INVALID_VALUE;
pub(super) const NOT_INITIALIZED: hipsparseStatus_t = hipsparseStatus_t::HIPSPARSE_STATUS_NOT_INITIALIZED;
pub(super) const NOT_SUPPORTED: hipsparseStatus_t = hipsparseStatus_t::HIPSPARSE_STATUS_NOT_SUPPORTED;

/// hipSPARSELt's status for a status of HIP.
pub(super) fn translate(status: hipError_t) -> hipsparseStatus_t {
    match status {
        hipError_t::hipErrorOutOfMemory => hipsparseStatus_t::HIPSPARSE_STATUS_ALLOC_FAILED,
        hipError_t::hipErrorNoDevice | hipError_t::hipErrorNotInitialized => NOT_INITIALIZED,
        hipError_t::hipErrorInvalidValue | hipError_t::hipErrorInvalidHandle => INVALID,
        _ => hipsparseStatus_t::HIPSPARSE_STATUS_EXECUTION_FAILED,
    }
}
