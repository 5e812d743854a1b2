//! hipRTC by the clang that is there.

mod compiler;
mod names;

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipvit_sys::Status as _;
use hipvit_sys::export::{c_name, caught, copy_text};
use hipvit_sys::hiprtc::{self, hiprtcProgram, hiprtcResult};
use hipvit_sys::{export, not_offered};

use crate::hip::{Handles, current};
use compiler::Source;

/// What a `hiprtcProgram` stands for.
struct Program {
    source: Source,
    made: Mutex<Made>,
}

/// What compiling has come to.
#[derive(Default)]
struct Made {
    log: String,
    code: Option<Vec<u8>>,
    /// Name expressions, in the order in which they were added.
    expressions: Vec<String>,
    /// The expressions' symbols, the latest last. None is removed before the program is destroyed, because
    /// `hiprtcGetLoweredName` gives out their addresses.
    lowered: Vec<(String, CString)>,
}

static PROGRAMS: Handles<Program> = Handles::new();

impl Program {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(body: impl FnOnce() -> Result<(), hiprtcResult>) -> hiprtcResult {
    caught(
        hiprtcResult::HIPRTC_SUCCESS,
        hiprtcResult::HIPRTC_ERROR_INTERNAL_ERROR,
        body,
    )
}

fn find(handle: hiprtcProgram) -> Result<Arc<Program>, hiprtcResult> {
    PROGRAMS
        .get(handle)
        .map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)
}

/// # Safety
/// `to` is null or may be written.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), hiprtcResult> {
    if to.is_null() {
        return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: as the caller says.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> Result<String, hiprtcResult> {
    if text.is_null() {
        return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// # Safety
/// `texts` has `count` C strings, or `count` is 0.
unsafe fn texts(texts: *const *const c_char, count: i32) -> Result<Vec<String>, hiprtcResult> {
    let count = usize::try_from(count).map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_INPUT)?;
    if count > 0 && texts.is_null() {
        return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: as the caller says.
    (0..count)
        .map(|index| unsafe { text(*texts.add(index)) })
        .collect()
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(result: hiprtcResult) -> *const c_char {
    c_name(result.name().unwrap_or("HIPRTC_ERROR_UNKNOWN"))
}
const _: hiprtc::prototypes::hiprtcGetErrorString = hiprtcGetErrorString;

export! { hiprtc, hiprtcResult, run;
    fn hiprtcVersion(major: *mut i32, minor: *mut i32) {
        put(major, hipvit_sys::hip::HIP_VERSION_MAJOR as i32)?;
        put(minor, hipvit_sys::hip::HIP_VERSION_MINOR as i32)
    }

    fn hiprtcCreateProgram(
        to: *mut hiprtcProgram, source: *const c_char, name: *const c_char, count: i32,
        headers: *const *const c_char, names: *const *const c_char,
    ) {
        let name = if name.is_null() { "default_program".to_owned() } else { text(name)? };
        let headers = texts(names, count)?.into_iter().zip(texts(headers, count)?).collect();
        let source = Source { name, text: text(source)?, headers };
        put(to, PROGRAMS.insert(Arc::new(Program { source, made: Mutex::default() })))
    }

    fn hiprtcDestroyProgram(handle: *mut hiprtcProgram) {
        let handle = handle.as_mut().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        PROGRAMS.remove(*handle).map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        *handle = ptr::null_mut();
        Ok(())
    }

    /// For the processor that an option names, else for the thread's device.
    fn hiprtcCompileProgram(handle: hiprtcProgram, count: i32, options: *const *const c_char) {
        let program = find(handle)?;
        let options = texts(options, count)?;
        let own = current().map(|device| device.part.target);
        let expressions = program.made().expressions.clone();
        let compiled = compiler::compile(&program.source, &expressions, &options, own.ok());
        let mut made = program.made();
        match compiled {
            Ok((code, log)) => {
                (made.log, made.code) = (log, None);
                let symbols = names::lowered(&code, expressions.len())
                    .ok_or(hiprtcResult::HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID)?;
                for (expression, symbol) in expressions.into_iter().zip(symbols) {
                    let symbol = CString::new(symbol)
                        .map_err(|_| hiprtcResult::HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID)?;
                    made.lowered.push((expression, symbol));
                }
                made.code = Some(code);
                Ok(())
            }
            Err((status, log)) => {
                (made.log, made.code) = (log, None);
                Err(status)
            }
        }
    }

    fn hiprtcAddNameExpression(handle: hiprtcProgram, expression: *const c_char) {
        let program = find(handle)?;
        let expression = text(expression)?;
        let mut made = program.made();
        if made.code.is_some() {
            return Err(hiprtcResult::HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION);
        }
        if !made.expressions.contains(&expression) {
            made.expressions.push(expression);
        }
        Ok(())
    }

    /// The name lives as long as the program.
    fn hiprtcGetLoweredName(handle: hiprtcProgram, expression: *const c_char, name: *mut *const c_char) {
        let program = find(handle)?;
        let expression = text(expression)?;
        let made = program.made();
        if made.code.is_none() {
            return Err(hiprtcResult::HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION);
        }
        let found = made.lowered.iter().rfind(|(known, _)| *known == expression);
        let (_, symbol) = found.ok_or(hiprtcResult::HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID)?;
        put(name, symbol.as_ptr())
    }

    fn hiprtcGetProgramLogSize(handle: hiprtcProgram, size: *mut usize) {
        put(size, find(handle)?.made().log.len() + 1)
    }

    fn hiprtcGetProgramLog(handle: hiprtcProgram, log: *mut c_char) {
        let program = find(handle)?;
        let made = program.made();
        if log.is_null() {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
        }
        // The buffer has the size that `hiprtcGetProgramLogSize` told.
        copy_text(made.log.as_bytes(), log, made.log.len() + 1);
        Ok(())
    }

    fn hiprtcGetCodeSize(handle: hiprtcProgram, size: *mut usize) {
        let program = find(handle)?;
        let made = program.made();
        let code = made.code.as_ref().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        put(size, code.len())
    }

    fn hiprtcGetCode(handle: hiprtcProgram, to: *mut c_char) {
        let program = find(handle)?;
        let made = program.made();
        let code = made.code.as_ref().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        if to.is_null() {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
        }
        // The buffer has the size that `hiprtcGetCodeSize` told.
        ptr::copy_nonoverlapping(code.as_ptr().cast(), to, code.len());
        Ok(())
    }
}

// LLVM bitcode, and linking it.
not_offered! { hiprtc, hiprtcResult, hiprtcResult::HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE;
    hiprtcGetBitcode
    hiprtcGetBitcodeSize
    hiprtcLinkCreate
    hiprtcLinkAddFile
    hiprtcLinkAddData
    hiprtcLinkComplete
    hiprtcLinkDestroy
}
