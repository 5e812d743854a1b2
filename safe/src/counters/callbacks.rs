//! Callbacks of rocprofiler-sdk: they set up the process's part, and report kernels, launches and counts. None of these can
//! panic; if one did, the process would end rather than unwind into C.

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
    // It is called once, and copies the structure at an unspecified time: these bytes stay.
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

/// A context with both services, started.
fn start(sdk: &Rocprofiler) -> Result<rocprofiler_context_id_t> {
    let mut context = rocprofiler_context_id_t { handle: 0 };
    // SAFETY: one number is written.
    check("rocprofiler_create_context", unsafe {
        sdk.rocprofiler_create_context(&mut context)
    })?;
    // SAFETY: no list of operations means all of the kind; the callback fits its prototype, and needs no argument.
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
    // SAFETY: the callbacks fit their prototypes, and need no arguments.
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
    // SAFETY: takes a number.
    check("rocprofiler_start_context", unsafe {
        sdk.rocprofiler_start_context(context)
    })?;
    Ok(context)
}

/// Code was loaded or unloaded, or one of its kernels is known.
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
    // SAFETY: null, or this operation's structure, which lives during the call as its name does.
    let kernel = unsafe {
        symbol
            .as_ref()
            .and_then(|symbol| Some((symbol.kernel_id, text(symbol.kernel_name)?)))
    };
    if let Some((number, name)) = kernel {
        // The symbol is that of the kernel's descriptor.
        let name = name.strip_suffix(".kd").unwrap_or(&name).to_owned();
        tool.state.lock().names.insert(number, name);
    }
}

/// A kernel is about to be launched.
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
        // SAFETY: null, or places for what this function returns.
        unsafe {
            if let (Some(config), Some(user)) = (config.as_mut(), user.as_mut()) {
                *config = counted;
                user.value = pass.number;
            }
        }
    }
}

/// The counts of a launch.
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
        // SAFETY: the caller passes `count` records, which live during the call.
        unsafe { slice::from_raw_parts(records, count) }
    };
    let mut values: BTreeMap<u64, f64> = BTreeMap::new();
    for record in records {
        let mut counter = rocprofiler_counter_id_t { handle: 0 };
        // SAFETY: one number is written.
        let returned = unsafe {
            tool.sdk
                .rocprofiler_query_record_counter_id(record.id, &mut counter)
        };
        if returned.is_ok_and(Status::is_success) {
            *values.entry(counter.handle).or_default() += record.counter_value;
        }
    }
    let mut state = tool.state.lock();
    // Counts of an earlier pass, which was not waited for, are of no use.
    if let Some(pass) = state.pass.as_mut().filter(|pass| pass.number == user.value) {
        pass.records.insert(dispatch.dispatch_info.dispatch_id, values);
    }
    tool.recorded.notify_all();
}

/// Some counters of an agent.
pub(super) unsafe extern "C" fn collect(
    _agent: rocprofiler_agent_id_t,
    counters: *mut rocprofiler_counter_id_t,
    count: usize,
    all: *mut c_void,
) -> rocprofiler_status_t {
    if !counters.is_null() {
        // SAFETY: `counters` has `count` elements, and `all` is the vector that the call was given, which nothing else uses
        // meanwhile.
        unsafe {
            let all = &mut *all.cast::<Vec<rocprofiler_counter_id_t>>();
            all.extend_from_slice(slice::from_raw_parts(counters, count));
        }
    }
    rocprofiler_status_t::ROCPROFILER_STATUS_SUCCESS
}
