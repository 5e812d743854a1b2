//! Callbacks of rocprofiler-sdk: setup of the process's tool, and reports of kernels, launches and counts. They do not panic. A panic would
//! end the process instead of unwinding into C.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::{ptr, slice};

use hipvit_sys::rocprofiler::{
    ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER, rocprofiler_agent_id_t,
    rocprofiler_callback_phase_t, rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t,
    rocprofiler_callback_tracing_kind_t, rocprofiler_callback_tracing_record_t, rocprofiler_client_id_t,
    rocprofiler_context_id_t, rocprofiler_counter_config_id_t, rocprofiler_counter_id_t,
    rocprofiler_counter_record_t, rocprofiler_dispatch_counting_service_data_t, rocprofiler_status_t,
    rocprofiler_tool_configure_result_t, rocprofiler_user_data_t,
};
use hipvit_sys::{Rocprofiler, Status};

use super::tool::{Launch, TOOL, check, text};
use crate::error::Result;

pub(super) unsafe extern "C" fn configure(
    _version: u32,
    _runtime: *const c_char,
    _priority: u32,
    client: *mut rocprofiler_client_id_t,
) -> *mut rocprofiler_tool_configure_result_t {
    // SAFETY: null, or the library's structure for this tool.
    if let Some(client) = unsafe { client.as_mut() } {
        client.name = c"hip-safe".as_ptr();
    }
    // Called once. The library copies the structure at an unspecified time, so these bytes are leaked.
    Box::into_raw(Box::new(rocprofiler_tool_configure_result_t {
        size: size_of::<rocprofiler_tool_configure_result_t>(),
        initialize: Some(initialize),
        finalize: None,
        tool_data: ptr::null_mut(),
    }))
}

unsafe extern "C" fn initialize(
    _finalize: Option<unsafe extern "C" fn(rocprofiler_client_id_t)>,
    _tool: *mut c_void,
) -> c_int {
    let Some(tool) = TOOL.get() else { return -1 };
    let context = start(&tool.sdk);
    let result = if context.is_ok() { 0 } else { -1 };
    tool.state.lock().context = Some(context);
    result
}

/// Creates and starts a context with both services.
fn start(sdk: &Rocprofiler) -> Result<rocprofiler_context_id_t> {
    let mut context = rocprofiler_context_id_t { handle: 0 };
    // SAFETY: the call writes one number.
    check("rocprofiler_create_context", unsafe {
        sdk.rocprofiler_create_context(&mut context)
    })?;
    // SAFETY: an empty list of operations means all of the kind. The callback has the expected prototype and needs no argument.
    check("rocprofiler_configure_callback_tracing_service", unsafe {
        sdk.rocprofiler_configure_callback_tracing_service(
            context,
            rocprofiler_callback_tracing_kind_t::ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT,
            ptr::null(),
            0,
            Some(loaded),
            ptr::null_mut(),
        )
    })?;
    // SAFETY: the callbacks have the expected prototypes and need no arguments.
    let returned = unsafe {
        sdk.rocprofiler_configure_callback_dispatch_counting_service(
            context,
            Some(launched),
            ptr::null_mut(),
            Some(recorded),
            ptr::null_mut(),
        )
    };
    check(
        "rocprofiler_configure_callback_dispatch_counting_service",
        returned,
    )?;
    // SAFETY: passes a number.
    check("rocprofiler_start_context", unsafe {
        sdk.rocprofiler_start_context(context)
    })?;
    Ok(context)
}

/// Called when code is loaded or unloaded, and for each of its kernels.
unsafe extern "C" fn loaded(
    record: rocprofiler_callback_tracing_record_t,
    _user: *mut rocprofiler_user_data_t,
    _argument: *mut c_void,
) {
    let Some(tool) = TOOL.get() else { return };
    if record.operation != ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER
        || record.phase != rocprofiler_callback_phase_t::ROCPROFILER_CALLBACK_PHASE_LOAD
    {
        return;
    }
    let symbol = record
        .payload
        .cast::<rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t>();
    // SAFETY: null, or the structure of this operation, which is alive during the call, as is its name.
    let kernel = unsafe {
        symbol
            .as_ref()
            .and_then(|symbol| Some((symbol.kernel_id, text(symbol.kernel_name)?)))
    };
    if let Some((number, name)) = kernel {
        // The symbol names the kernel's descriptor.
        let name = name.strip_suffix(".kd").unwrap_or(&name).to_owned();
        tool.state.lock().names.insert(number, name);
    }
}

/// Called before a kernel is launched.
unsafe extern "C" fn launched(
    dispatch: rocprofiler_dispatch_counting_service_data_t,
    config: *mut rocprofiler_counter_config_id_t,
    user: *mut rocprofiler_user_data_t,
    _argument: *mut c_void,
) {
    let Some(tool) = TOOL.get() else { return };
    let mut state = tool.state.lock();
    let Some(pass) = &mut state.pass else { return };
    let launch = dispatch.dispatch_info;
    pass.launches.push(Launch {
        number: launch.dispatch_id,
        agent: launch.agent_id.handle,
        kernel: launch.kernel_id,
    });
    if let Some((agent, counted)) = pass.config
        && agent.handle == launch.agent_id.handle
    {
        // SAFETY: null, or places for the results of this function.
        unsafe {
            if let (Some(config), Some(user)) = (config.as_mut(), user.as_mut()) {
                *config = counted;
                user.value = pass.number;
            }
        }
    }
}

/// Called with the counts of a launch.
unsafe extern "C" fn recorded(
    dispatch: rocprofiler_dispatch_counting_service_data_t,
    records: *mut rocprofiler_counter_record_t,
    count: usize,
    user: rocprofiler_user_data_t,
    _argument: *mut c_void,
) {
    let Some(tool) = TOOL.get() else { return };
    let records = if records.is_null() {
        &[]
    } else {
        // SAFETY: the caller passes `count` records, which are alive during the call.
        unsafe { slice::from_raw_parts(records, count) }
    };
    let mut values: BTreeMap<u64, f64> = BTreeMap::new();
    for record in records {
        let mut counter = rocprofiler_counter_id_t { handle: 0 };
        // SAFETY: the call writes one number.
        let returned = unsafe {
            tool.sdk
                .rocprofiler_query_record_counter_id(record.id, &mut counter)
        };
        if returned.is_ok_and(Status::is_success) {
            *values.entry(counter.handle).or_default() += record.counter_value;
        }
    }
    let mut state = tool.state.lock();
    // Ignore counts of an earlier pass that was not waited for.
    if let Some(pass) = state.pass.as_mut().filter(|pass| pass.number == user.value) {
        pass.records.insert(dispatch.dispatch_info.dispatch_id, values);
    }
    tool.recorded.notify_all();
}

/// Called with some of an agent's counters.
pub(super) unsafe extern "C" fn collect(
    _agent: rocprofiler_agent_id_t,
    counters: *mut rocprofiler_counter_id_t,
    count: usize,
    all: *mut c_void,
) -> rocprofiler_status_t {
    if !counters.is_null() {
        // SAFETY: `counters` has `count` elements. `all` is the vector passed to the call, which has no other user in the meantime.
        unsafe {
            let all = &mut *all.cast::<Vec<rocprofiler_counter_id_t>>();
            all.extend_from_slice(slice::from_raw_parts(counters, count));
        }
    }
    rocprofiler_status_t::ROCPROFILER_STATUS_SUCCESS
}
