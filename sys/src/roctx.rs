//! roctx: named ranges and marks that a profiler shows beside its own records.
//!
//! Declared by hand, unlike the other libraries: these functions take C strings and have no types of their own, and their header
//! comes with the profiler's packages, which an installation of ROCm need not have.
#![allow(
    missing_docs,
    non_snake_case,
    non_camel_case_types,
    reason = "C names, as in the other libraries' modules"
)]

use std::ffi::{c_char, c_int};

const LIBRARY: &str = "roctx";
/// Of rocprofiler-sdk in ROCm 7 and 6, which rocprofv3 reads; of roctracer, which rocprof and rocprofv2 read.
const SONAMES: &[&str] = &[
    "librocprofiler-sdk-roctx.so.1",
    "librocprofiler-sdk-roctx.so.0",
    "libroctx64.so.4",
];

crate::table::table! { Roctx;
    pub fn roctxMarkA(message: *const c_char);
    pub fn roctxRangePushA(message: *const c_char) -> c_int;
    pub fn roctxRangePop() -> c_int;
}
