//! Conversion of a library's status to an [`Error`] with advice.

use hipvit_sys::Status;
use hipvit_sys::hip::hipError_t;

use crate::error::Error;

/// Calls a function of a table, and converts its status to a `Result`. Must be in an `unsafe` block.
macro_rules! call {
    ($device:expr, $table:ident.$function:ident($($argument:expr),* $(,)?)) => {
        $crate::status::check($device.name(), stringify!($function), $table.$function($($argument),*))
    };
}
pub(crate) use call;

/// Converts the status of a call to a `Result`.
pub(crate) fn check<S: Status>(
    device: &str,
    call: &'static str,
    returned: Result<S, hipvit_sys::Error>,
) -> Result<(), Error> {
    match returned {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => Err(Error::Device {
            device: device.to_owned(),
            call,
            status: status.to_string(),
            advice: advice(status.name().unwrap_or_default()).to_owned(),
        }),
        Err(error) => Err(missing(&error)),
    }
}

/// Converts the error of a missing library or function.
pub(crate) fn missing(error: &hipvit_sys::Error) -> Error {
    Error::Provider {
        reason: error.brief(),
        tried: error.tried(),
    }
}

/// Returns true if the call failed with this status.
pub(crate) fn is<S: Status>(error: &Error, expected: S) -> bool {
    matches!(error, Error::Device { status, .. } if *status == expected.to_string())
}

/// Returns advice for a status. Empty if there is none.
fn advice(status: &str) -> &'static str {
    match status {
        "hipErrorIllegalAddress" => {
            "a kernel accessed memory outside its buffers; the process cannot use the GPU any more"
        }
        "hipErrorLaunchFailure" => "a kernel faulted; the process cannot use the GPU any more",
        "hipErrorLaunchOutOfResources" => {
            "the kernel needs more registers or LDS than the GPU has; take smaller blocks"
        }
        "hipErrorLaunchTimeOut" => "the kernel ran too long for a GPU that also drives a display",
        "hipErrorInsufficientDriver" => "update the GPU's driver, or install the ROCm that fits it",
        "hipErrorPeerAccessUnsupported" => {
            "no link between these GPUs lets one use the other's memory; copies between them go through the host"
        }
        "hipErrorNotSupported"
        | "HIPBLAS_STATUS_NOT_SUPPORTED"
        | "HIPSPARSE_STATUS_NOT_SUPPORTED"
        | "rocblas_status_not_implemented"
        | "miopenStatusNotImplemented"
        | "miopenStatusUnsupportedOp" => "this provider does not offer it",
        "rocblas_status_arch_mismatch"
        | "HIPBLAS_STATUS_ARCH_MISMATCH"
        | "HIPSPARSE_STATUS_ARCH_MISMATCH" => "the library was built without this GPU's architecture",
        "rocblas_status_memory_error"
        | "HIPBLAS_STATUS_ALLOC_FAILED"
        | "HIPSPARSE_STATUS_ALLOC_FAILED"
        | "miopenStatusAllocFailed" => "out of memory; take a smaller batch or a narrower dtype",
        "ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED" => {
            "a profiler is in this process already, as under rocprofv3; run without it"
        }
        "ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED" => {
            "the driver lets this user count nothing; try as root or with CAP_PERFMON"
        }
        "ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED" => "rocprofiler-sdk has no counters of this GPU",
        "ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_KERNEL" => "update the GPU's driver",
        _ => "",
    }
}

/// Returns true if the runtime lacks this kind of memory. Providers for CUDA lack it, and do not need it.
pub(crate) fn is_not_offered(error: &Error) -> bool {
    is(error, hipError_t::hipErrorNotSupported)
}
