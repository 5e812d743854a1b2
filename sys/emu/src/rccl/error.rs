//! Errors of calls.

use hipvit_sys::hip::hipError_t;
use hipvit_sys::rccl::ncclResult_t;

/// An error: the status of the call, and a text for `ncclGetLastError`.
pub(super) struct Error {
    pub(super) result: ncclResult_t,
    pub(super) text: Option<&'static str>,
}

impl Error {
    pub(super) fn new(result: ncclResult_t, text: impl AsRef<str>) -> Self {
        Self {
            result,
            text: Some(text.as_ref().replace('\0', " ").leak()),
        }
    }

    pub(super) fn argument(text: impl AsRef<str>) -> Self {
        Self::new(ncclResult_t::ncclInvalidArgument, text)
    }
}

impl From<ncclResult_t> for Error {
    fn from(result: ncclResult_t) -> Self {
        Self { result, text: None }
    }
}

impl From<hipError_t> for Error {
    fn from(status: hipError_t) -> Self {
        Self::new(ncclResult_t::ncclUnhandledCudaError, status.to_string())
    }
}
