//! hipRTC: a compiled program is an empty bundle for the requested architecture, because the kernels are part
//! of this library. It counts its compilations.
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::{SUCCESS, Status};
const COMPILATION: Status = 6;

static COMPILED: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
pub extern "C" fn fake_compiled() -> u64 {
    COMPILED.load(SeqCst)
}

#[derive(Default)]
struct Program {
    source: String,
    code: Vec<u8>,
    log: Vec<u8>,
}

unsafe fn program<'a>(handle: *mut c_void) -> &'a mut Program {
    unsafe { &mut *handle.cast() }
}

unsafe fn text(chars: *const c_char) -> String {
    unsafe { CStr::from_ptr(chars) }.to_str().unwrap().to_owned()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> Status {
    unsafe { *major = 7 };
    unsafe { *minor = 2 };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCreateProgram(
    out: *mut *mut c_void,
    source: *const c_char,
    _name: *const c_char,
    _headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> Status {
    let source = unsafe { text(source) };
    let program = Box::new(Program {
        source,
        ..Program::default()
    });
    unsafe { *out = Box::into_raw(program).cast() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcDestroyProgram(handle: *mut *mut c_void) -> Status {
    drop(unsafe { Box::from_raw((*handle).cast::<Program>()) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcCompileProgram(
    handle: *mut c_void,
    count: c_int,
    options: *const *const c_char,
) -> Status {
    COMPILED.fetch_add(1, SeqCst);
    let program = unsafe { program(handle) };
    if program.source.contains("#error") {
        program.log = b"k.hip:1:2: error: as asked\0".to_vec();
        return COMPILATION;
    }
    let options = (0..count as usize).map(|n| unsafe { text(*options.add(n)) });
    let arch = options
        .filter_map(|option| option.strip_prefix("--offload-arch=").map(str::to_owned))
        .next()
        .unwrap();
    let entry = format!("hipv4-amdgcn-amd-amdhsa--{arch}");
    let mut code = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    for number in [1, 56 + entry.len(), 0, entry.len()] {
        code.extend((number as u64).to_le_bytes());
    }
    code.extend(entry.as_bytes());
    program.code = code;
    SUCCESS
}

unsafe fn give(bytes: &[u8], to: *mut c_char) -> Status {
    unsafe { to.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCodeSize(handle: *mut c_void, size: *mut usize) -> Status {
    unsafe { *size = program(handle).code.len() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetCode(handle: *mut c_void, to: *mut c_char) -> Status {
    unsafe { give(&program(handle).code, to) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLogSize(handle: *mut c_void, size: *mut usize) -> Status {
    unsafe { *size = program(handle).log.len() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hiprtcGetProgramLog(handle: *mut c_void, to: *mut c_char) -> Status {
    unsafe { give(&program(handle).log, to) }
}
