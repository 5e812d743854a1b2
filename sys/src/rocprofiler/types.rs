//! The C structures, and the enumerations as newtypes: any value is allowed. The file compiles alone: the fake provider of hipvit's
//! tests has it too.
#![allow(non_camel_case_types, non_upper_case_globals, reason = "C names")]

use core::ffi::{c_char, c_int, c_void};

#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocprofiler_status_t(pub u32);
impl rocprofiler_status_t {
    pub const ROCPROFILER_STATUS_SUCCESS: Self = Self(0);
    pub const ROCPROFILER_STATUS_ERROR: Self = Self(1);
    pub const ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_FOUND: Self = Self(2);
    pub const ROCPROFILER_STATUS_ERROR_BUFFER_NOT_FOUND: Self = Self(3);
    pub const ROCPROFILER_STATUS_ERROR_KIND_NOT_FOUND: Self = Self(4);
    pub const ROCPROFILER_STATUS_ERROR_OPERATION_NOT_FOUND: Self = Self(5);
    pub const ROCPROFILER_STATUS_ERROR_THREAD_NOT_FOUND: Self = Self(6);
    pub const ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND: Self = Self(7);
    pub const ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND: Self = Self(8);
    pub const ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR: Self = Self(9);
    pub const ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID: Self = Self(10);
    pub const ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED: Self = Self(11);
    pub const ROCPROFILER_STATUS_ERROR_CONTEXT_CONFLICT: Self = Self(12);
    pub const ROCPROFILER_STATUS_ERROR_CONTEXT_ID_NOT_ZERO: Self = Self(13);
    pub const ROCPROFILER_STATUS_ERROR_BUFFER_BUSY: Self = Self(14);
    pub const ROCPROFILER_STATUS_ERROR_SERVICE_ALREADY_CONFIGURED: Self = Self(15);
    pub const ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED: Self = Self(16);
    pub const ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED: Self = Self(17);
    pub const ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI: Self = Self(18);
    pub const ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT: Self = Self(19);
    pub const ROCPROFILER_STATUS_ERROR_METRIC_NOT_VALID_FOR_AGENT: Self = Self(20);
    pub const ROCPROFILER_STATUS_ERROR_FINALIZED: Self = Self(21);
    pub const ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED: Self = Self(22);
    pub const ROCPROFILER_STATUS_ERROR_DIM_NOT_FOUND: Self = Self(23);
    pub const ROCPROFILER_STATUS_ERROR_PROFILE_COUNTER_NOT_FOUND: Self = Self(24);
    pub const ROCPROFILER_STATUS_ERROR_AST_GENERATION_FAILED: Self = Self(25);
    pub const ROCPROFILER_STATUS_ERROR_AST_NOT_FOUND: Self = Self(26);
    pub const ROCPROFILER_STATUS_ERROR_AQL_NO_EVENT_COORD: Self = Self(27);
    pub const ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_KERNEL: Self = Self(28);
    pub const ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES: Self = Self(29);
    pub const ROCPROFILER_STATUS_ERROR_PROFILE_NOT_FOUND: Self = Self(30);
    pub const ROCPROFILER_STATUS_ERROR_AGENT_DISPATCH_CONFLICT: Self = Self(31);
    pub const ROCPROFILER_STATUS_INTERNAL_NO_AGENT_CONTEXT: Self = Self(32);
    pub const ROCPROFILER_STATUS_ERROR_SAMPLE_RATE_EXCEEDED: Self = Self(33);
    pub const ROCPROFILER_STATUS_ERROR_NO_PROFILE_QUEUE: Self = Self(34);
    pub const ROCPROFILER_STATUS_ERROR_NO_HARDWARE_COUNTERS: Self = Self(35);
    pub const ROCPROFILER_STATUS_ERROR_AGENT_MISMATCH: Self = Self(36);
    pub const ROCPROFILER_STATUS_ERROR_NOT_AVAILABLE: Self = Self(37);
    pub const ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT: Self = Self(38);
    pub const ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED: Self = Self(39);
    pub const ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED: Self = Self(40);
}

#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocprofiler_callback_tracing_kind_t(pub u32);
impl rocprofiler_callback_tracing_kind_t {
    pub const ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT: Self = Self(10);
}

#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocprofiler_callback_phase_t(pub u32);
impl rocprofiler_callback_phase_t {
    pub const ROCPROFILER_CALLBACK_PHASE_LOAD: Self = Self(1);
    pub const ROCPROFILER_CALLBACK_PHASE_UNLOAD: Self = Self(2);
}

#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocprofiler_counter_info_version_id_t(pub u32);
impl rocprofiler_counter_info_version_id_t {
    pub const ROCPROFILER_COUNTER_INFO_VERSION_0: Self = Self(1);
}

/// Number of an event within a kind of tracing.
pub type rocprofiler_tracing_operation_t = i32;
/// Event of the tracing of code objects: a kernel becomes known.
pub const ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER: rocprofiler_tracing_operation_t = 2;
/// A counter and, of a counter with several instances, which of them.
pub type rocprofiler_counter_instance_id_t = u64;

/// In C a union with `void *ptr`.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_user_data_t {
    pub value: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_context_id_t {
    pub handle: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_agent_id_t {
    pub handle: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_queue_id_t {
    pub handle: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_counter_id_t {
    pub handle: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_counter_config_id_t {
    pub handle: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_dim3_t {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_client_id_t {
    pub size: usize,
    pub name: *const c_char,
    pub handle: u32,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_tool_configure_result_t {
    pub size: usize,
    pub initialize: rocprofiler_tool_initialize_t,
    pub finalize: rocprofiler_tool_finalize_t,
    pub tool_data: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_correlation_id_t {
    pub internal: u64,
    pub external: rocprofiler_user_data_t,
    pub ancestor: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_async_correlation_id_t {
    pub internal: u64,
    pub external: rocprofiler_user_data_t,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_callback_tracing_record_t {
    pub context_id: rocprofiler_context_id_t,
    pub thread_id: u64,
    pub correlation_id: rocprofiler_correlation_id_t,
    pub kind: rocprofiler_callback_tracing_kind_t,
    pub operation: rocprofiler_tracing_operation_t,
    pub phase: rocprofiler_callback_phase_t,
    pub payload: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t {
    pub size: u64,
    pub kernel_id: u64,
    pub code_object_id: u64,
    pub kernel_name: *const c_char,
    pub kernel_object: u64,
    pub kernarg_segment_size: u32,
    pub kernarg_segment_alignment: u32,
    pub group_segment_size: u32,
    pub private_segment_size: u32,
    pub sgpr_count: u32,
    pub arch_vgpr_count: u32,
    pub accum_vgpr_count: u32,
    pub kernel_code_entry_byte_offset: i64,
    /// In C a union.
    pub kernel_address: u64,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_kernel_dispatch_info_t {
    pub size: u64,
    pub agent_id: rocprofiler_agent_id_t,
    pub queue_id: rocprofiler_queue_id_t,
    pub kernel_id: u64,
    pub dispatch_id: u64,
    pub private_segment_size: u32,
    pub group_segment_size: u32,
    pub workgroup_size: rocprofiler_dim3_t,
    pub grid_size: rocprofiler_dim3_t,
    pub reserved_padding: [u8; 56],
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_dispatch_counting_service_data_t {
    pub size: u64,
    pub correlation_id: rocprofiler_async_correlation_id_t,
    pub start_timestamp: u64,
    pub end_timestamp: u64,
    pub dispatch_info: rocprofiler_kernel_dispatch_info_t,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_counter_info_v0_t {
    pub id: rocprofiler_counter_id_t,
    pub name: *const c_char,
    pub description: *const c_char,
    pub block: *const c_char,
    pub expression: *const c_char,
    /// Bits: is a constant; is derived from others.
    pub flags: u8,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rocprofiler_counter_record_t {
    pub id: rocprofiler_counter_instance_id_t,
    pub counter_value: f64,
    pub dispatch_id: u64,
    pub user_data: rocprofiler_user_data_t,
    pub agent_id: rocprofiler_agent_id_t,
}

/// Returns the tool's part, or null. `version` is `10000 * major + 100 * minor + patch`.
pub type rocprofiler_configure_func_t = Option<
    unsafe extern "C" fn(
        version: u32,
        runtime_version: *const c_char,
        priority: u32,
        client: *mut rocprofiler_client_id_t,
    ) -> *mut rocprofiler_tool_configure_result_t,
>;
/// Called within `rocprofiler_force_configure`; what it returns is not looked at.
pub type rocprofiler_tool_initialize_t = Option<
    unsafe extern "C" fn(
        finalize: Option<unsafe extern "C" fn(rocprofiler_client_id_t)>,
        tool: *mut c_void,
    ) -> c_int,
>;
pub type rocprofiler_tool_finalize_t = Option<unsafe extern "C" fn(tool: *mut c_void)>;
pub type rocprofiler_callback_tracing_cb_t = Option<
    unsafe extern "C" fn(
        record: rocprofiler_callback_tracing_record_t,
        user_data: *mut rocprofiler_user_data_t,
        argument: *mut c_void,
    ),
>;
/// Before the launch: may set a configuration, whose counters are then counted, and a value that the record callback gets.
pub type rocprofiler_dispatch_counting_service_cb_t = Option<
    unsafe extern "C" fn(
        dispatch: rocprofiler_dispatch_counting_service_data_t,
        config: *mut rocprofiler_counter_config_id_t,
        user_data: *mut rocprofiler_user_data_t,
        argument: *mut c_void,
    ),
>;
/// After the launch, on a thread of the library.
pub type rocprofiler_dispatch_counting_record_cb_t = Option<
    unsafe extern "C" fn(
        dispatch: rocprofiler_dispatch_counting_service_data_t,
        records: *mut rocprofiler_counter_record_t,
        count: usize,
        user_data: rocprofiler_user_data_t,
        argument: *mut c_void,
    ),
>;
pub type rocprofiler_available_counters_cb_t = Option<
    unsafe extern "C" fn(
        agent: rocprofiler_agent_id_t,
        counters: *mut rocprofiler_counter_id_t,
        count: usize,
        argument: *mut c_void,
    ) -> rocprofiler_status_t,
>;

// The headers' layouts, in the form that `tests/layouts.rs` reads.
#[rustfmt::skip]
#[allow(clippy::unnecessary_operation, clippy::identity_op, reason = "as bindgen states them")]
const _: () = {
    ["Size of rocprofiler_user_data_t"][::core::mem::size_of::<rocprofiler_user_data_t>() - 8usize];
    ["Size of rocprofiler_context_id_t"][::core::mem::size_of::<rocprofiler_context_id_t>() - 8usize];
    ["Alignment of rocprofiler_context_id_t"][::core::mem::align_of::<rocprofiler_context_id_t>() - 8usize];
    ["Offset of handle"][::core::mem::offset_of!(rocprofiler_context_id_t, handle) - 0usize];
    ["Size of rocprofiler_agent_id_t"][::core::mem::size_of::<rocprofiler_agent_id_t>() - 8usize];
    ["Alignment of rocprofiler_agent_id_t"][::core::mem::align_of::<rocprofiler_agent_id_t>() - 8usize];
    ["Offset of handle"][::core::mem::offset_of!(rocprofiler_agent_id_t, handle) - 0usize];
    ["Size of rocprofiler_queue_id_t"][::core::mem::size_of::<rocprofiler_queue_id_t>() - 8usize];
    ["Alignment of rocprofiler_queue_id_t"][::core::mem::align_of::<rocprofiler_queue_id_t>() - 8usize];
    ["Offset of handle"][::core::mem::offset_of!(rocprofiler_queue_id_t, handle) - 0usize];
    ["Size of rocprofiler_counter_id_t"][::core::mem::size_of::<rocprofiler_counter_id_t>() - 8usize];
    ["Alignment of rocprofiler_counter_id_t"][::core::mem::align_of::<rocprofiler_counter_id_t>() - 8usize];
    ["Offset of handle"][::core::mem::offset_of!(rocprofiler_counter_id_t, handle) - 0usize];
    ["Size of rocprofiler_counter_config_id_t"][::core::mem::size_of::<rocprofiler_counter_config_id_t>() - 8usize];
    ["Alignment of rocprofiler_counter_config_id_t"][::core::mem::align_of::<rocprofiler_counter_config_id_t>() - 8usize];
    ["Offset of handle"][::core::mem::offset_of!(rocprofiler_counter_config_id_t, handle) - 0usize];
    ["Size of rocprofiler_dim3_t"][::core::mem::size_of::<rocprofiler_dim3_t>() - 12usize];
    ["Alignment of rocprofiler_dim3_t"][::core::mem::align_of::<rocprofiler_dim3_t>() - 4usize];
    ["Offset of x"][::core::mem::offset_of!(rocprofiler_dim3_t, x) - 0usize];
    ["Offset of y"][::core::mem::offset_of!(rocprofiler_dim3_t, y) - 4usize];
    ["Offset of z"][::core::mem::offset_of!(rocprofiler_dim3_t, z) - 8usize];
    ["Size of rocprofiler_client_id_t"][::core::mem::size_of::<rocprofiler_client_id_t>() - 24usize];
    ["Alignment of rocprofiler_client_id_t"][::core::mem::align_of::<rocprofiler_client_id_t>() - 8usize];
    ["Offset of size"][::core::mem::offset_of!(rocprofiler_client_id_t, size) - 0usize];
    ["Offset of name"][::core::mem::offset_of!(rocprofiler_client_id_t, name) - 8usize];
    ["Offset of handle"][::core::mem::offset_of!(rocprofiler_client_id_t, handle) - 16usize];
    ["Size of rocprofiler_tool_configure_result_t"][::core::mem::size_of::<rocprofiler_tool_configure_result_t>() - 32usize];
    ["Alignment of rocprofiler_tool_configure_result_t"][::core::mem::align_of::<rocprofiler_tool_configure_result_t>() - 8usize];
    ["Offset of size"][::core::mem::offset_of!(rocprofiler_tool_configure_result_t, size) - 0usize];
    ["Offset of initialize"][::core::mem::offset_of!(rocprofiler_tool_configure_result_t, initialize) - 8usize];
    ["Offset of finalize"][::core::mem::offset_of!(rocprofiler_tool_configure_result_t, finalize) - 16usize];
    ["Offset of tool_data"][::core::mem::offset_of!(rocprofiler_tool_configure_result_t, tool_data) - 24usize];
    ["Size of rocprofiler_correlation_id_t"][::core::mem::size_of::<rocprofiler_correlation_id_t>() - 24usize];
    ["Alignment of rocprofiler_correlation_id_t"][::core::mem::align_of::<rocprofiler_correlation_id_t>() - 8usize];
    ["Offset of internal"][::core::mem::offset_of!(rocprofiler_correlation_id_t, internal) - 0usize];
    ["Offset of external"][::core::mem::offset_of!(rocprofiler_correlation_id_t, external) - 8usize];
    ["Offset of ancestor"][::core::mem::offset_of!(rocprofiler_correlation_id_t, ancestor) - 16usize];
    ["Size of rocprofiler_async_correlation_id_t"][::core::mem::size_of::<rocprofiler_async_correlation_id_t>() - 16usize];
    ["Alignment of rocprofiler_async_correlation_id_t"][::core::mem::align_of::<rocprofiler_async_correlation_id_t>() - 8usize];
    ["Offset of internal"][::core::mem::offset_of!(rocprofiler_async_correlation_id_t, internal) - 0usize];
    ["Offset of external"][::core::mem::offset_of!(rocprofiler_async_correlation_id_t, external) - 8usize];
    ["Size of rocprofiler_callback_tracing_record_t"][::core::mem::size_of::<rocprofiler_callback_tracing_record_t>() - 64usize];
    ["Alignment of rocprofiler_callback_tracing_record_t"][::core::mem::align_of::<rocprofiler_callback_tracing_record_t>() - 8usize];
    ["Offset of context_id"][::core::mem::offset_of!(rocprofiler_callback_tracing_record_t, context_id) - 0usize];
    ["Offset of thread_id"][::core::mem::offset_of!(rocprofiler_callback_tracing_record_t, thread_id) - 8usize];
    ["Offset of correlation_id"][::core::mem::offset_of!(rocprofiler_callback_tracing_record_t, correlation_id) - 16usize];
    ["Offset of kind"][::core::mem::offset_of!(rocprofiler_callback_tracing_record_t, kind) - 40usize];
    ["Offset of operation"][::core::mem::offset_of!(rocprofiler_callback_tracing_record_t, operation) - 44usize];
    ["Offset of phase"][::core::mem::offset_of!(rocprofiler_callback_tracing_record_t, phase) - 48usize];
    ["Offset of payload"][::core::mem::offset_of!(rocprofiler_callback_tracing_record_t, payload) - 56usize];
    ["Size of rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t"][::core::mem::size_of::<rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t>() - 88usize];
    ["Alignment of rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t"][::core::mem::align_of::<rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t>() - 8usize];
    ["Offset of size"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, size) - 0usize];
    ["Offset of kernel_id"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, kernel_id) - 8usize];
    ["Offset of code_object_id"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, code_object_id) - 16usize];
    ["Offset of kernel_name"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, kernel_name) - 24usize];
    ["Offset of kernel_object"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, kernel_object) - 32usize];
    ["Offset of kernarg_segment_size"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, kernarg_segment_size) - 40usize];
    ["Offset of kernarg_segment_alignment"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, kernarg_segment_alignment) - 44usize];
    ["Offset of group_segment_size"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, group_segment_size) - 48usize];
    ["Offset of private_segment_size"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, private_segment_size) - 52usize];
    ["Offset of sgpr_count"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, sgpr_count) - 56usize];
    ["Offset of arch_vgpr_count"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, arch_vgpr_count) - 60usize];
    ["Offset of accum_vgpr_count"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, accum_vgpr_count) - 64usize];
    ["Offset of kernel_code_entry_byte_offset"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, kernel_code_entry_byte_offset) - 72usize];
    ["Offset of kernel_address"][::core::mem::offset_of!(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, kernel_address) - 80usize];
    ["Size of rocprofiler_kernel_dispatch_info_t"][::core::mem::size_of::<rocprofiler_kernel_dispatch_info_t>() - 128usize];
    ["Alignment of rocprofiler_kernel_dispatch_info_t"][::core::mem::align_of::<rocprofiler_kernel_dispatch_info_t>() - 8usize];
    ["Offset of size"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, size) - 0usize];
    ["Offset of agent_id"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, agent_id) - 8usize];
    ["Offset of queue_id"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, queue_id) - 16usize];
    ["Offset of kernel_id"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, kernel_id) - 24usize];
    ["Offset of dispatch_id"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, dispatch_id) - 32usize];
    ["Offset of private_segment_size"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, private_segment_size) - 40usize];
    ["Offset of group_segment_size"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, group_segment_size) - 44usize];
    ["Offset of workgroup_size"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, workgroup_size) - 48usize];
    ["Offset of grid_size"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, grid_size) - 60usize];
    ["Offset of reserved_padding"][::core::mem::offset_of!(rocprofiler_kernel_dispatch_info_t, reserved_padding) - 72usize];
    ["Size of rocprofiler_dispatch_counting_service_data_t"][::core::mem::size_of::<rocprofiler_dispatch_counting_service_data_t>() - 168usize];
    ["Alignment of rocprofiler_dispatch_counting_service_data_t"][::core::mem::align_of::<rocprofiler_dispatch_counting_service_data_t>() - 8usize];
    ["Offset of size"][::core::mem::offset_of!(rocprofiler_dispatch_counting_service_data_t, size) - 0usize];
    ["Offset of correlation_id"][::core::mem::offset_of!(rocprofiler_dispatch_counting_service_data_t, correlation_id) - 8usize];
    ["Offset of start_timestamp"][::core::mem::offset_of!(rocprofiler_dispatch_counting_service_data_t, start_timestamp) - 24usize];
    ["Offset of end_timestamp"][::core::mem::offset_of!(rocprofiler_dispatch_counting_service_data_t, end_timestamp) - 32usize];
    ["Offset of dispatch_info"][::core::mem::offset_of!(rocprofiler_dispatch_counting_service_data_t, dispatch_info) - 40usize];
    ["Size of rocprofiler_counter_info_v0_t"][::core::mem::size_of::<rocprofiler_counter_info_v0_t>() - 48usize];
    ["Alignment of rocprofiler_counter_info_v0_t"][::core::mem::align_of::<rocprofiler_counter_info_v0_t>() - 8usize];
    ["Offset of id"][::core::mem::offset_of!(rocprofiler_counter_info_v0_t, id) - 0usize];
    ["Offset of name"][::core::mem::offset_of!(rocprofiler_counter_info_v0_t, name) - 8usize];
    ["Offset of description"][::core::mem::offset_of!(rocprofiler_counter_info_v0_t, description) - 16usize];
    ["Offset of block"][::core::mem::offset_of!(rocprofiler_counter_info_v0_t, block) - 24usize];
    ["Offset of expression"][::core::mem::offset_of!(rocprofiler_counter_info_v0_t, expression) - 32usize];
    ["Size of rocprofiler_counter_record_t"][::core::mem::size_of::<rocprofiler_counter_record_t>() - 40usize];
    ["Alignment of rocprofiler_counter_record_t"][::core::mem::align_of::<rocprofiler_counter_record_t>() - 8usize];
    ["Offset of id"][::core::mem::offset_of!(rocprofiler_counter_record_t, id) - 0usize];
    ["Offset of counter_value"][::core::mem::offset_of!(rocprofiler_counter_record_t, counter_value) - 8usize];
    ["Offset of dispatch_id"][::core::mem::offset_of!(rocprofiler_counter_record_t, dispatch_id) - 16usize];
    ["Offset of user_data"][::core::mem::offset_of!(rocprofiler_counter_record_t, user_data) - 24usize];
    ["Offset of agent_id"][::core::mem::offset_of!(rocprofiler_counter_record_t, agent_id) - 32usize];
};
