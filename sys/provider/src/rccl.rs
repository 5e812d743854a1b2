//! RCCL: its status.

use hipvit_sys::rccl::ncclResult_t;

crate::export::status! {
    ncclResult_t, success: ncclSuccess, panic: ncclInternalError, null: ncclInvalidArgument
}

/// Exports the names of RCCL's statuses.
#[macro_export]
macro_rules! shared_rccl {
    () => {
        $crate::status_name! { rccl, ncclResult_t, ncclGetErrorString, "unknown result code" }
    };
}
