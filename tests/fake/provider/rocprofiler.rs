//! rocprofiler-sdk 1.x as documented. A tool is configured before HIP is used, is notified of each loaded
//! kernel, is queried at each launch, and gets the counts on another thread. A launch counts multiples of its
//! waves. `FAKE_ROCPROFILER` selects a fault.
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

#[path = "../../../sys/src/rocprofiler/types.rs"]
mod types;

use types::{
    rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t as Symbol,
    rocprofiler_counter_info_v0_t as Info, rocprofiler_dispatch_counting_service_data_t as Dispatch,
    rocprofiler_status_t as Status, rocprofiler_user_data_t as UserData, *,
};

const SUCCESS: Status = Status::ROCPROFILER_STATUS_SUCCESS;
const LOCKED: Status = Status::ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED;
const CONTEXT: rocprofiler_context_id_t = rocprofiler_context_id_t { handle: 5 };
const AGENT: rocprofiler_agent_id_t = rocprofiler_agent_id_t { handle: 77 };

/// Counters: name, block, number of the block's two registers, and count per wave.
const COUNTERS: [(&str, &str, usize, f64); 10] = [
    ("CPC_CPC_STAT_BUSY", "CPC", 1, 1.0),
    ("SQ_WAVES", "SQ", 1, 1.0),
    ("SQ_INSTS_VALU", "SQ", 1, 10.0),
    ("SQ_INSTS_SALU", "SQ", 1, 3.0),
    ("SQ_LDS_IDX_ACTIVE", "SQ", 1, 8.0),
    ("SQ_LDS_BANK_CONFLICT", "SQ", 1, 2.0),
    ("TCC_HIT_sum", "TCC", 1, 3.0),
    ("TCC_MISS_sum", "TCC", 1, 1.0),
    ("FETCH_SIZE", "TCC", 2, 0.25),
    ("WRITE_SIZE", "TCC", 3, 0.5),
];
const REGISTERS: usize = 2;
/// Number of instances of a counter, over which its value is spread.
const INSTANCES: u64 = 4;

#[derive(Default)]
struct Tool {
    initializing: bool,
    started: bool,
    loaded: rocprofiler_callback_tracing_cb_t,
    launched: rocprofiler_dispatch_counting_service_cb_t,
    recorded: rocprofiler_dispatch_counting_record_cb_t,
}

static TOOL: Mutex<Option<Tool>> = Mutex::new(None);
static HIP_USED: AtomicBool = AtomicBool::new(false);
/// Configurations, numbered from 1: indices of counters.
static CONFIGS: Mutex<Vec<Vec<usize>>> = Mutex::new(Vec::new());
static LAUNCHES: AtomicU64 = AtomicU64::new(1);

fn fault(name: &str) -> bool {
    std::env::var("FAKE_ROCPROFILER").is_ok_and(|fault| fault == name)
}

/// The first call initialises HIP.
pub fn hip_is_used() {
    HIP_USED.store(true, SeqCst);
}

/// Returns the tool's callback while its context is started.
fn callback<T>(of: impl Fn(&Tool) -> T) -> Option<T> {
    let tool = TOOL.lock().unwrap();
    tool.as_ref().filter(|tool| tool.started).map(of)
}

fn dispatch(number: u64, kernel: u64) -> Dispatch {
    let mut dispatch: Dispatch = unsafe { std::mem::zeroed() };
    dispatch.size = size_of::<Dispatch>() as u64;
    dispatch.dispatch_info.dispatch_id = number;
    dispatch.dispatch_info.kernel_id = kernel;
    dispatch.dispatch_info.agent_id = AGENT;
    dispatch
}

/// Notifies the tool of a kernel.
pub fn load(kernel: u64, name: &str) {
    let Some(Some(loaded)) = callback(|tool| tool.loaded) else { return };
    if fault("nameless") {
        return;
    }
    let name = CString::new(format!("{name}.kd")).unwrap();
    let mut symbol: Symbol = unsafe { std::mem::zeroed() };
    symbol.kernel_id = kernel;
    symbol.kernel_name = name.as_ptr();
    let mut record: rocprofiler_callback_tracing_record_t = unsafe { std::mem::zeroed() };
    record.kind = rocprofiler_callback_tracing_kind_t::ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT;
    record.operation = ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER;
    record.phase = rocprofiler_callback_phase_t::ROCPROFILER_CALLBACK_PHASE_LOAD;
    record.payload = (&raw mut symbol).cast();
    unsafe { loaded(record, &mut UserData { value: 0 }, null_mut()) };
}

/// Queries the tool at a launch. The returned function must be called when the kernel has run.
pub fn launch(kernel: u64, name: &'static str, waves: u64) -> impl Fn() + Send + Sync + 'static {
    let number = LAUNCHES.fetch_add(1, SeqCst);
    let mut config = rocprofiler_counter_config_id_t { handle: 0 };
    let mut user = UserData { value: 0 };
    if let Some(Some(launched)) = callback(|tool| tool.launched) {
        unsafe { launched(dispatch(number, kernel), &mut config, &mut user, null_mut()) };
        if fault("other kernels") && config.handle != 0 && name == "pool_f32" {
            unsafe { launched(dispatch(number + 1_000_000, kernel), &mut config, &mut user, null_mut()) };
            record(number + 1_000_000, kernel, name, waves, config.handle as usize, user);
        }
    }
    move || record(number, kernel, name, waves, config.handle as usize, user)
}

/// Delivers the counts, late and on a separate thread.
fn record(number: u64, kernel: u64, name: &'static str, waves: u64, config: usize, user: UserData) {
    let Some(Some(recorded)) = callback(|tool| tool.recorded) else { return };
    if config == 0 || fault("lost") && name == "pool_f32" {
        return;
    }
    let counters = CONFIGS.lock().unwrap()[config - 1].clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        let mut records = Vec::new();
        for counter in counters {
            let (counted, _, _, each) = COUNTERS[counter];
            if fault("partial") && counted == "SQ_WAVES" && name == "pool_f32" {
                continue;
            }
            for instance in 0..INSTANCES {
                records.push(rocprofiler_counter_record_t {
                    id: (counter as u64 + 1) << 48 | instance,
                    counter_value: each * waves as f64 / INSTANCES as f64,
                    dispatch_id: number,
                    user_data: user,
                    agent_id: AGENT,
                });
            }
        }
        let count = records.len();
        unsafe { recorded(dispatch(number, kernel), records.as_mut_ptr(), count, user, null_mut()) };
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_get_version(major: *mut u32, minor: *mut u32, patch: *mut u32) -> Status {
    unsafe { *major = if fault("version") { 2 } else { 1 } };
    unsafe { *minor = 0 };
    unsafe { *patch = 3 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_force_configure(configure: rocprofiler_configure_func_t) -> Status {
    if fault("locked") || TOOL.lock().unwrap().is_some() {
        return LOCKED;
    }
    *TOOL.lock().unwrap() = Some(Tool {
        initializing: true,
        ..Tool::default()
    });
    let late = HIP_USED.load(SeqCst) || fault("unseen");
    let mut client = rocprofiler_client_id_t {
        size: size_of::<rocprofiler_client_id_t>(),
        name: null(),
        handle: 0,
    };
    let text = c"1.0.3".as_ptr();
    let tool = unsafe { configure.unwrap()(10_003, text, 0, &mut client) };
    let tool = unsafe { *tool };
    unsafe { tool.initialize.unwrap()(None, tool.tool_data) };
    let mut state = TOOL.lock().unwrap();
    let state = state.as_mut().unwrap();
    state.initializing = false;
    if late {
        // No tool received its interception tables.
        (state.loaded, state.launched) = (None, None);
    }
    SUCCESS
}

/// Runs during the tool's initialisation.
fn configure(change: impl FnOnce(&mut Tool)) -> Status {
    match &mut *TOOL.lock().unwrap() {
        Some(tool) if tool.initializing => change(tool),
        _ => return LOCKED,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_context(context: *mut rocprofiler_context_id_t) -> Status {
    if unsafe { (*context).handle } != 0 {
        return Status::ROCPROFILER_STATUS_ERROR_CONTEXT_ID_NOT_ZERO;
    }
    if fault("context") {
        return Status::ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR;
    }
    unsafe { *context = CONTEXT };
    configure(|_| ())
}
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_configure_callback_tracing_service(
    context: rocprofiler_context_id_t,
    kind: rocprofiler_callback_tracing_kind_t,
    _operations: *const i32,
    count: usize,
    callback: rocprofiler_callback_tracing_cb_t,
    _argument: *mut c_void,
) -> Status {
    assert_eq!((context.handle, kind.0, count), (CONTEXT.handle, 10, 0));
    configure(|tool| tool.loaded = callback)
}
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_configure_callback_dispatch_counting_service(
    context: rocprofiler_context_id_t,
    launched: rocprofiler_dispatch_counting_service_cb_t,
    _launched_argument: *mut c_void,
    recorded: rocprofiler_dispatch_counting_record_cb_t,
    _recorded_argument: *mut c_void,
) -> Status {
    assert_eq!(context.handle, CONTEXT.handle);
    configure(|tool| (tool.launched, tool.recorded) = (launched, recorded))
}
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_start_context(context: rocprofiler_context_id_t) -> Status {
    assert_eq!(context.handle, CONTEXT.handle);
    TOOL.lock().unwrap().as_mut().unwrap().started = true;
    SUCCESS
}
/// Counts in progress are still delivered.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_stop_context(context: rocprofiler_context_id_t) -> Status {
    assert_eq!(context.handle, CONTEXT.handle);
    let recorded = TOOL.lock().unwrap().as_mut().and_then(|tool| {
        tool.started = false;
        tool.recorded
    });
    let late = thread::spawn(move || {
        let user = UserData { value: 1 };
        unsafe { recorded.unwrap()(dispatch(1, 1), null_mut(), 0, user, null_mut()) };
    });
    late.join().unwrap();
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_iterate_agent_supported_counters(
    agent: rocprofiler_agent_id_t,
    callback: rocprofiler_available_counters_cb_t,
    argument: *mut c_void,
) -> Status {
    assert_eq!(agent.handle, AGENT.handle);
    let count = if fault("none") { 1 } else { COUNTERS.len() as u64 };
    let mut ids: Vec<_> = (1..=count).map(|handle| rocprofiler_counter_id_t { handle }).collect();
    unsafe { callback.unwrap()(agent, ids.as_mut_ptr(), ids.len(), argument) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_counter_info(
    counter: rocprofiler_counter_id_t,
    version: rocprofiler_counter_info_version_id_t,
    info: *mut c_void,
) -> Status {
    assert_eq!(version.0, 1);
    // The library's names are static, too.
    let name: *const c_char = CString::new(COUNTERS[counter.handle as usize - 1].0).unwrap().into_raw();
    let info = unsafe { &mut *info.cast::<Info>() };
    (info.id, info.name) = (counter, name);
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_counter_config(
    agent: rocprofiler_agent_id_t,
    counters: *mut rocprofiler_counter_id_t,
    count: usize,
    config: *mut rocprofiler_counter_config_id_t,
) -> Status {
    if fault("denied") {
        return Status::ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED;
    }
    assert_eq!((agent.handle, unsafe { (*config).handle }), (AGENT.handle, 0));
    let counters = unsafe { std::slice::from_raw_parts(counters, count) };
    let counters: Vec<usize> = counters.iter().map(|counter| counter.handle as usize - 1).collect();
    for block in ["CPC", "SQ", "TCC"] {
        let of_block = counters.iter().filter(|counter| COUNTERS[**counter].1 == block);
        if of_block.map(|counter| COUNTERS[*counter].2).sum::<usize>() > REGISTERS {
            return Status::ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT;
        }
    }
    let mut configs = CONFIGS.lock().unwrap();
    configs.push(counters);
    unsafe { (*config).handle = configs.len() as u64 };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_destroy_counter_config(config: rocprofiler_counter_config_id_t) -> Status {
    CONFIGS.lock().unwrap()[config.handle as usize - 1].clear();
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_record_counter_id(
    instance: u64,
    counter: *mut rocprofiler_counter_id_t,
) -> Status {
    unsafe { (*counter).handle = instance >> 48 };
    SUCCESS
}
