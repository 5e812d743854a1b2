//! AMD's rocprofiler-sdk, with or without a GPU: that it exports what is bound and takes a tool before HIP is used. A process of its
//! own, as it takes one. Skipped where the library is not installed; Debian does not have it.
#![allow(
    clippy::expect_used,
    reason = "an expectation that fails is the test that fails"
)]

use std::ffi::{c_char, c_int, c_void};
use std::io::Write as _;
use std::ptr;
use std::sync::OnceLock;

use hipvit_sys::rocprofiler::{
    rocprofiler_client_id_t, rocprofiler_context_id_t, rocprofiler_status_t,
    rocprofiler_tool_configure_result_t,
};
use hipvit_sys::{Provider, Rocprofiler, Status, Table};

static SDK: OnceLock<Rocprofiler> = OnceLock::new();
/// Status of making a context, within the tool's initialisation.
static CONTEXT: OnceLock<rocprofiler_status_t> = OnceLock::new();

unsafe extern "C" fn configure(
    _version: u32,
    _runtime: *const c_char,
    _priority: u32,
    _client: *mut rocprofiler_client_id_t,
) -> *mut rocprofiler_tool_configure_result_t {
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
    let mut context = rocprofiler_context_id_t { handle: 0 };
    // SAFETY: one number is written.
    let made = SDK
        .get()
        .map(|sdk| unsafe { sdk.rocprofiler_create_context(&mut context) });
    if let Some(Ok(status)) = made {
        let _ = CONTEXT.set(status);
    }
    0
}

#[test]
fn a_tool_is_taken_once() {
    let rocm = Provider::named("rocm").expect("a name that is known");
    let Ok(sdk) = rocm.rocprofiler() else {
        // Past the test harness, which keeps what passing tests print.
        let _ = writeln!(std::io::stderr(), "skipped: rocprofiler-sdk is not installed");
        return;
    };
    assert!(
        sdk.missing().is_empty(),
        "rocprofiler-sdk lacks {:?}",
        sdk.missing()
    );
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three numbers are written.
    let status = unsafe { sdk.rocprofiler_get_version(&mut major, &mut minor, &mut patch) };
    assert!(status.expect("exported").is_success());
    assert_eq!(major, 1, "{major}.{minor}.{patch}");
    let _ = SDK.set(sdk.clone());
    // SAFETY: the function fits the prototype, and stays.
    let configure = || unsafe { sdk.rocprofiler_force_configure(Some(configure)) }.expect("exported");
    assert_eq!(configure(), rocprofiler_status_t::ROCPROFILER_STATUS_SUCCESS);
    assert_eq!(
        CONTEXT.get().copied(),
        Some(rocprofiler_status_t::ROCPROFILER_STATUS_SUCCESS)
    );
    let again = rocprofiler_status_t::ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED;
    assert_eq!(configure(), again);
}
