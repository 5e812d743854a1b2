//! hipBLASLt: its status.

use hipvit_sys::hipblaslt::hipblasStatus_t;

crate::export::status! {
    hipblasStatus_t, success: HIPBLAS_STATUS_SUCCESS, panic: HIPBLAS_STATUS_INTERNAL_ERROR,
    null: HIPBLAS_STATUS_INVALID_VALUE
}
