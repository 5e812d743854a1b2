// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

impl hiprtcResult {
    pub const HIPRTC_SUCCESS: hiprtcResult = hiprtcResult(0);
    pub const HIPRTC_ERROR_OUT_OF_MEMORY: hiprtcResult = hiprtcResult(1);
    pub const HIPRTC_ERROR_PROGRAM_CREATION_FAILURE: hiprtcResult = hiprtcResult(2);
    pub const HIPRTC_ERROR_INVALID_INPUT: hiprtcResult = hiprtcResult(3);
    pub const HIPRTC_ERROR_INVALID_PROGRAM: hiprtcResult = hiprtcResult(4);
    pub const HIPRTC_ERROR_INVALID_OPTION: hiprtcResult = hiprtcResult(5);
    pub const HIPRTC_ERROR_COMPILATION: hiprtcResult = hiprtcResult(6);
    pub const HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE: hiprtcResult = hiprtcResult(7);
    pub const HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION: hiprtcResult = hiprtcResult(
        8,
    );
    pub const HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION: hiprtcResult = hiprtcResult(
        9,
    );
    pub const HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID: hiprtcResult = hiprtcResult(10);
    pub const HIPRTC_ERROR_INTERNAL_ERROR: hiprtcResult = hiprtcResult(11);
    pub const HIPRTC_ERROR_LINKING: hiprtcResult = hiprtcResult(100);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hiprtcResult(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug)]
pub struct ihiprtcLinkState {
    _unused: [u8; 0],
}
pub type hiprtcLinkState = *mut ihiprtcLinkState;
#[repr(C)]
#[derive(Debug)]
pub struct _hiprtcProgram {
    _unused: [u8; 0],
}
pub type hiprtcProgram = *mut _hiprtcProgram;
crate::table::table! {
    Hiprtc;
    pub fn hiprtcGetErrorString(result: hiprtcResult) -> *const ::core::ffi::c_char;
    pub fn hiprtcVersion(
        major: *mut ::core::ffi::c_int,
        minor: *mut ::core::ffi::c_int,
    ) -> hiprtcResult;
    pub fn hiprtcAddNameExpression(
        prog: hiprtcProgram,
        name_expression: *const ::core::ffi::c_char,
    ) -> hiprtcResult;
    pub fn hiprtcCompileProgram(
        prog: hiprtcProgram,
        numOptions: ::core::ffi::c_int,
        options: *const *const ::core::ffi::c_char,
    ) -> hiprtcResult;
    pub fn hiprtcCreateProgram(
        prog: *mut hiprtcProgram,
        src: *const ::core::ffi::c_char,
        name: *const ::core::ffi::c_char,
        numHeaders: ::core::ffi::c_int,
        headers: *const *const ::core::ffi::c_char,
        includeNames: *const *const ::core::ffi::c_char,
    ) -> hiprtcResult;
    pub fn hiprtcDestroyProgram(prog: *mut hiprtcProgram) -> hiprtcResult;
    pub fn hiprtcGetLoweredName(
        prog: hiprtcProgram,
        name_expression: *const ::core::ffi::c_char,
        lowered_name: *mut *const ::core::ffi::c_char,
    ) -> hiprtcResult;
    pub fn hiprtcGetProgramLog(
        prog: hiprtcProgram,
        log: *mut ::core::ffi::c_char,
    ) -> hiprtcResult;
    pub fn hiprtcGetProgramLogSize(
        prog: hiprtcProgram,
        logSizeRet: *mut usize,
    ) -> hiprtcResult;
    pub fn hiprtcGetCode(
        prog: hiprtcProgram,
        code: *mut ::core::ffi::c_char,
    ) -> hiprtcResult;
    pub fn hiprtcGetCodeSize(
        prog: hiprtcProgram,
        codeSizeRet: *mut usize,
    ) -> hiprtcResult;
    pub fn hiprtcGetBitcode(
        prog: hiprtcProgram,
        bitcode: *mut ::core::ffi::c_char,
    ) -> hiprtcResult;
    pub fn hiprtcGetBitcodeSize(
        prog: hiprtcProgram,
        bitcode_size: *mut usize,
    ) -> hiprtcResult;
    pub fn hiprtcLinkCreate(
        num_options: ::core::ffi::c_uint,
        option_ptr: *mut hipJitOption,
        option_vals_pptr: *mut *mut ::core::ffi::c_void,
        hip_link_state_ptr: *mut hiprtcLinkState,
    ) -> hiprtcResult;
    pub fn hiprtcLinkAddFile(
        hip_link_state: hiprtcLinkState,
        input_type: hipJitInputType,
        file_path: *const ::core::ffi::c_char,
        num_options: ::core::ffi::c_uint,
        options_ptr: *mut hipJitOption,
        option_values: *mut *mut ::core::ffi::c_void,
    ) -> hiprtcResult;
    pub fn hiprtcLinkAddData(
        hip_link_state: hiprtcLinkState,
        input_type: hipJitInputType,
        image: *mut ::core::ffi::c_void,
        image_size: usize,
        name: *const ::core::ffi::c_char,
        num_options: ::core::ffi::c_uint,
        options_ptr: *mut hipJitOption,
        option_values: *mut *mut ::core::ffi::c_void,
    ) -> hiprtcResult;
    pub fn hiprtcLinkComplete(
        hip_link_state: hiprtcLinkState,
        bin_out: *mut *mut ::core::ffi::c_void,
        size_out: *mut usize,
    ) -> hiprtcResult;
    pub fn hiprtcLinkDestroy(hip_link_state: hiprtcLinkState) -> hiprtcResult;
}
crate::status::status! {
    hiprtcResult, success: HIPRTC_SUCCESS;
    HIPRTC_SUCCESS,
    HIPRTC_ERROR_OUT_OF_MEMORY,
    HIPRTC_ERROR_PROGRAM_CREATION_FAILURE,
    HIPRTC_ERROR_INVALID_INPUT,
    HIPRTC_ERROR_INVALID_PROGRAM,
    HIPRTC_ERROR_INVALID_OPTION,
    HIPRTC_ERROR_COMPILATION,
    HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE,
    HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION,
    HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION,
    HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID,
    HIPRTC_ERROR_INTERNAL_ERROR,
    HIPRTC_ERROR_LINKING,
}
