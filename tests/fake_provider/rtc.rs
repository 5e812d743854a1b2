//! hipRTC that takes any program: the kernels are this library's own. The code is an empty bundle for gfx942.

use std::ffi::c_void;

use super::{SUCCESS, Status};

fn code() -> Vec<u8> {
    let name = b"hipv4-amdgcn-amd-amdhsa--gfx942";
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    for number in [1, 32 + 24 + name.len(), 0, name.len()] {
        bytes.extend((number as u64).to_le_bytes());
    }
    bytes.extend(name);
    bytes
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcVersion(major: *mut i32, minor: *mut i32) -> Status {
    unsafe { (*major, *minor) = (7, 2) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCreateProgram(
    out: *mut *mut c_void,
    _source: usize,
    _name: usize,
    _headers: i32,
    _texts: usize,
    _names: usize,
) -> Status {
    unsafe { *out = std::ptr::dangling_mut::<u8>().cast() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hiprtcCompileProgram(_program: usize, _count: i32, _options: usize) -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCodeSize(_program: usize, size: *mut usize) -> Status {
    unsafe { *size = code().len() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCode(_program: usize, out: *mut u8) -> Status {
    let code = code();
    unsafe { out.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hiprtcDestroyProgram(_program: usize) -> Status {
    SUCCESS
}
