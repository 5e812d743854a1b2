//! roctx on NVTX: ranges and marks for Nsight and other tools.

use std::ffi::{c_char, c_int};

use crate::library::{NVTX, Symbol};

/// Return value of roctx without ranges.
const NONE: c_int = -1;

static MARK: Symbol = Symbol::new(&NVTX, "nvtxMarkA");
static PUSH: Symbol = Symbol::new(&NVTX, "nvtxRangePushA");
static POP: Symbol = Symbol::new(&NVTX, "nvtxRangePop");

unsafe fn mark(_message: *const c_char) {}
unsafe fn push(_message: *const c_char) -> c_int {
    NONE
}
unsafe fn pop() -> c_int {
    NONE
}

#[unsafe(no_mangle)]
unsafe extern "C" fn roctxMarkA(message: *const c_char) {
    // SAFETY: `nvtxMarkA` has this prototype; the caller gives a C string.
    if let Ok(function) = unsafe { MARK.typed(mark as unsafe fn(_)) } {
        // SAFETY: as above.
        unsafe { function(message) }
    }
}
const _: hipvit_sys::roctx::prototypes::roctxMarkA = roctxMarkA;

#[unsafe(no_mangle)]
unsafe extern "C" fn roctxRangePushA(message: *const c_char) -> c_int {
    // SAFETY: `nvtxRangePushA` has this prototype; the caller gives a C string.
    match unsafe { PUSH.typed(push as unsafe fn(_) -> _) } {
        // SAFETY: as above.
        Ok(function) => unsafe { function(message) },
        Err(_) => NONE,
    }
}
const _: hipvit_sys::roctx::prototypes::roctxRangePushA = roctxRangePushA;

#[unsafe(no_mangle)]
unsafe extern "C" fn roctxRangePop() -> c_int {
    // SAFETY: `nvtxRangePop` has this prototype, without arguments.
    match unsafe { POP.typed(pop as unsafe fn() -> _) } {
        // SAFETY: as above.
        Ok(function) => unsafe { function() },
        Err(_) => NONE,
    }
}
const _: hipvit_sys::roctx::prototypes::roctxRangePop = roctxRangePop;
