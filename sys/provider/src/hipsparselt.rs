//! hipSPARSELt: its status.

use hipvit_sys::hipsparselt::hipsparseStatus_t;

crate::export::status! {
    hipsparseStatus_t, success: HIPSPARSE_STATUS_SUCCESS, panic: HIPSPARSE_STATUS_INTERNAL_ERROR,
    null: HIPSPARSE_STATUS_INVALID_VALUE
}
