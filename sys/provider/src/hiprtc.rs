//! hipRTC: its status, and what no provider offers.

use hipvit_sys::hiprtc::hiprtcResult;

crate::export::status! {
    hiprtcResult, success: HIPRTC_SUCCESS, panic: HIPRTC_ERROR_INTERNAL_ERROR, null: HIPRTC_ERROR_INVALID_INPUT
}

/// Exports the names of hipRTC's statuses. Exports the functions of LLVM bitcode and its linker, which no provider offers, too.
#[macro_export]
macro_rules! shared_hiprtc {
    () => {
        $crate::status_name! { hiprtc, hiprtcResult, hiprtcGetErrorString, "HIPRTC_ERROR_UNKNOWN" }

        $crate::not_offered! {
            hiprtc, $crate::sys::hiprtc::hiprtcResult,
            $crate::sys::hiprtc::hiprtcResult::HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE;
            hiprtcGetBitcode
            hiprtcGetBitcodeSize
            hiprtcLinkCreate
            hiprtcLinkAddFile
            hiprtcLinkAddData
            hiprtcLinkComplete
            hiprtcLinkDestroy
        }
    };
}
