//! A library with a few of ROCm's functions, compiled by the tests. `--cfg` chooses which; `STAND_IN` is a number that
//! distinguishes builds.
#![allow(non_snake_case, improper_ctypes_definitions)]

/// Version that `hipRuntimeGetVersion` returns: it identifies the build.
#[cfg(hip)]
const BUILD: &str = env!("STAND_IN");

#[cfg(hip)]
#[unsafe(no_mangle)]
pub extern "C" fn hipInit(_flags: u32) -> u32 {
    100
}

#[cfg(hip)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipRuntimeGetVersion(version: *mut i32) -> u32 {
    unsafe { *version = BUILD.parse().unwrap_or(-1) };
    0
}

#[cfg(hiprtc)]
#[unsafe(no_mangle)]
pub extern "C" fn hiprtcDestroyProgram(_program: *mut *mut u8) -> u32 {
    4
}

#[cfg(rocblas)]
#[unsafe(no_mangle)]
pub extern "C" fn rocblas_destroy_handle(_handle: *mut u8) -> u32 {
    1
}

#[cfg(hipblaslt)]
#[unsafe(no_mangle)]
pub extern "C" fn hipblasLtDestroy(_handle: *mut u8) -> u32 {
    3
}

#[cfg(hipsparselt)]
#[unsafe(no_mangle)]
pub extern "C" fn hipsparseLtDestroy(_handle: *const u8) -> u32 {
    1
}

#[cfg(miopen)]
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroy(_handle: *mut u8) -> u32 {
    7
}

#[cfg(rccl)]
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> u32 {
    7
}

#[cfg(amd_smi)]
#[unsafe(no_mangle)]
pub extern "C" fn amdsmi_shut_down() -> u32 {
    2
}
