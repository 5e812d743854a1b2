//! rocprofiler-sdk: hardware counters of each launch of a kernel.
//!
//! These bindings are written by hand from the headers of version 1.0 (ROCm 7), and cover a small part of them. The headers come
//! with the profiler's package, which an installation of ROCm may lack, and Debian lacks. `tests/layouts.rs` compares the types
//! with the headers if they are installed.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_snake_case,
    non_camel_case_types,
    clippy::too_many_arguments,
    clippy::type_complexity,
    reason = "C names, as in the other libraries' modules"
)]

mod types;

use std::ffi::c_void;

pub use types::*;

const LIBRARY: &str = "rocprofiler-sdk";
/// ROCm 7's. ROCm 6's version 0 has other structures.
const SONAMES: &[&str] = if cfg!(windows) {
    &[]
} else {
    &["librocprofiler-sdk.so.1"]
};

crate::table::table! { Rocprofiler;
    pub fn rocprofiler_get_version(major: *mut u32, minor: *mut u32, patch: *mut u32) -> rocprofiler_status_t;
    pub fn rocprofiler_force_configure(configure: rocprofiler_configure_func_t) -> rocprofiler_status_t;
    pub fn rocprofiler_create_context(context: *mut rocprofiler_context_id_t) -> rocprofiler_status_t;
    pub fn rocprofiler_start_context(context: rocprofiler_context_id_t) -> rocprofiler_status_t;
    pub fn rocprofiler_stop_context(context: rocprofiler_context_id_t) -> rocprofiler_status_t;
    pub fn rocprofiler_configure_callback_tracing_service(
        context: rocprofiler_context_id_t,
        kind: rocprofiler_callback_tracing_kind_t,
        operations: *const rocprofiler_tracing_operation_t,
        count: usize,
        callback: rocprofiler_callback_tracing_cb_t,
        argument: *mut c_void,
    ) -> rocprofiler_status_t;
    pub fn rocprofiler_configure_callback_dispatch_counting_service(
        context: rocprofiler_context_id_t,
        dispatch: rocprofiler_dispatch_counting_service_cb_t,
        dispatch_argument: *mut c_void,
        record: rocprofiler_dispatch_counting_record_cb_t,
        record_argument: *mut c_void,
    ) -> rocprofiler_status_t;
    pub fn rocprofiler_iterate_agent_supported_counters(
        agent: rocprofiler_agent_id_t,
        callback: rocprofiler_available_counters_cb_t,
        argument: *mut c_void,
    ) -> rocprofiler_status_t;
    pub fn rocprofiler_query_counter_info(
        counter: rocprofiler_counter_id_t,
        version: rocprofiler_counter_info_version_id_t,
        info: *mut c_void,
    ) -> rocprofiler_status_t;
    pub fn rocprofiler_create_counter_config(
        agent: rocprofiler_agent_id_t,
        counters: *mut rocprofiler_counter_id_t,
        count: usize,
        config: *mut rocprofiler_counter_config_id_t,
    ) -> rocprofiler_status_t;
    pub fn rocprofiler_destroy_counter_config(config: rocprofiler_counter_config_id_t) -> rocprofiler_status_t;
    pub fn rocprofiler_query_record_counter_id(
        instance: rocprofiler_counter_instance_id_t,
        counter: *mut rocprofiler_counter_id_t,
    ) -> rocprofiler_status_t;
}

crate::status::status! {
    rocprofiler_status_t, success: ROCPROFILER_STATUS_SUCCESS;
    ROCPROFILER_STATUS_SUCCESS,
    ROCPROFILER_STATUS_ERROR,
    ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_BUFFER_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_KIND_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_OPERATION_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_THREAD_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR,
    ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID,
    ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED,
    ROCPROFILER_STATUS_ERROR_CONTEXT_CONFLICT,
    ROCPROFILER_STATUS_ERROR_CONTEXT_ID_NOT_ZERO,
    ROCPROFILER_STATUS_ERROR_BUFFER_BUSY,
    ROCPROFILER_STATUS_ERROR_SERVICE_ALREADY_CONFIGURED,
    ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED,
    ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED,
    ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI,
    ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT,
    ROCPROFILER_STATUS_ERROR_METRIC_NOT_VALID_FOR_AGENT,
    ROCPROFILER_STATUS_ERROR_FINALIZED,
    ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED,
    ROCPROFILER_STATUS_ERROR_DIM_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_PROFILE_COUNTER_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_AST_GENERATION_FAILED,
    ROCPROFILER_STATUS_ERROR_AST_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_AQL_NO_EVENT_COORD,
    ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_KERNEL,
    ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES,
    ROCPROFILER_STATUS_ERROR_PROFILE_NOT_FOUND,
    ROCPROFILER_STATUS_ERROR_AGENT_DISPATCH_CONFLICT,
    ROCPROFILER_STATUS_INTERNAL_NO_AGENT_CONTEXT,
    ROCPROFILER_STATUS_ERROR_SAMPLE_RATE_EXCEEDED,
    ROCPROFILER_STATUS_ERROR_NO_PROFILE_QUEUE,
    ROCPROFILER_STATUS_ERROR_NO_HARDWARE_COUNTERS,
    ROCPROFILER_STATUS_ERROR_AGENT_MISMATCH,
    ROCPROFILER_STATUS_ERROR_NOT_AVAILABLE,
    ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT,
    ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED,
    ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED,
}
