//! roctx: named ranges and marks that a profiler shows with its own records.
//!
//! These bindings are written by hand, unlike the other libraries'. The functions take C strings and have no types of their own.
//! Their header comes with the profiler's packages, which an installation of ROCm may lack.
#![allow(
    missing_docs,
    non_snake_case,
    non_camel_case_types,
    reason = "C names, as in the other libraries' modules"
)]

use std::ffi::{c_char, c_int};

const LIBRARY: &str = "roctx";
/// Libraries of rocprofiler-sdk in ROCm 7 and 6, which rocprofv3 reads, and of roctracer, which rocprof and rocprofv2 read.
const SONAMES: &[&str] = if cfg!(windows) {
    &[]
} else {
    &[
        "librocprofiler-sdk-roctx.so.1",
        "librocprofiler-sdk-roctx.so.0",
        "libroctx64.so.4",
    ]
};

crate::table::table! { Roctx;
    pub fn roctxMarkA(message: *const c_char);
    pub fn roctxRangePushA(message: *const c_char) -> c_int;
    pub fn roctxRangePop() -> c_int;
}
