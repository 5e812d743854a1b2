//! The names of status codes.

use hipvit_sys::Status;
use hipvit_sys::hip::hipError_t;
use hipvit_sys::hiprtc::hiprtcResult;
use hipvit_sys::miopen::miopenStatus_t;
use hipvit_sys::rccl::ncclResult_t;
use hipvit_sys::rocblas::rocblas_status;

#[test]
fn a_status_is_shown_by_name_and_number() {
    assert_eq!(
        hipError_t::hipErrorNoBinaryForGpu.to_string(),
        "hipErrorNoBinaryForGpu (209)"
    );
    assert_eq!(hipError_t(2).name(), Some("hipErrorOutOfMemory"));
    assert_eq!(
        hiprtcResult::HIPRTC_ERROR_COMPILATION.name(),
        Some("HIPRTC_ERROR_COMPILATION")
    );
    assert_eq!(miopenStatus_t(3).name(), Some("miopenStatusBadParm"));
    assert_eq!(ncclResult_t(1).code(), 1);
}

#[test]
fn an_unknown_status_is_still_a_status() {
    let status = hipError_t(123_456);
    assert_eq!(status.name(), None);
    assert_eq!(status.to_string(), "unknown hipError_t 123456");
    assert_eq!(status.ok(), Err(status));
}

#[test]
fn only_success_is_success() {
    assert_eq!(hipError_t::hipSuccess.ok(), Ok(()));
    assert_eq!(rocblas_status::rocblas_status_success.ok(), Ok(()));
    for status in [
        rocblas_status::rocblas_status_size_unchanged,
        rocblas_status::rocblas_status_perf_degraded,
    ] {
        assert!(!status.is_success());
    }
    assert!(!ncclResult_t::ncclInProgress.is_success());
}
