//! hipRTC, by an installed clang.

mod compiler;
mod names;

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hip_provider::export::copy_text;
use hip_provider::hiprtc::{put, run};
use hip_provider::{Handles, export};
use hipvit_sys::hiprtc::{hiprtcProgram, hiprtcResult};

use crate::hip::current;
use compiler::Source;

/// The object behind a `hiprtcProgram`.
struct Program {
    source: Source,
    state: Mutex<State>,
}

/// The result of compiling.
#[derive(Default)]
struct State {
    log: String,
    code: Option<Vec<u8>>,
    /// Name expressions, in the order in which they were added.
    expressions: Vec<String>,
    /// The expressions' symbols, the latest last. None is removed before the program is destroyed, because
    /// `hiprtcGetLoweredName` returns their addresses.
    lowered: Vec<(String, CString)>,
}

static PROGRAMS: Handles<Program> = Handles::new();

impl Program {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(handle: hiprtcProgram) -> Result<Arc<Program>, hiprtcResult> {
    PROGRAMS
        .get(handle)
        .map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)
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

hip_provider::shared_hiprtc!();

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
        put(to, PROGRAMS.insert(Arc::new(Program { source, state: Mutex::default() })))
    }

    fn hiprtcDestroyProgram(handle: *mut hiprtcProgram) {
        let handle = handle.as_mut().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        PROGRAMS.remove(*handle).map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        *handle = ptr::null_mut();
        Ok(())
    }

    /// Compiles for the processor that an option names, or the thread's device.
    fn hiprtcCompileProgram(handle: hiprtcProgram, count: i32, options: *const *const c_char) {
        let program = find(handle)?;
        let options = texts(options, count)?;
        let own = current().map(|device| device.part.target);
        let expressions = program.state().expressions.clone();
        let compiled = compiler::compile(&program.source, &expressions, &options, own.ok());
        let mut state = program.state();
        match compiled {
            Ok((code, log)) => {
                (state.log, state.code) = (log, None);
                let symbols = names::lowered(&code, expressions.len())
                    .ok_or(hiprtcResult::HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID)?;
                for (expression, symbol) in expressions.into_iter().zip(symbols) {
                    let symbol = CString::new(symbol)
                        .map_err(|_| hiprtcResult::HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID)?;
                    state.lowered.push((expression, symbol));
                }
                state.code = Some(code);
                Ok(())
            }
            Err((status, log)) => {
                (state.log, state.code) = (log, None);
                Err(status)
            }
        }
    }

    fn hiprtcAddNameExpression(handle: hiprtcProgram, expression: *const c_char) {
        let program = find(handle)?;
        let expression = text(expression)?;
        let mut state = program.state();
        if state.code.is_some() {
            return Err(hiprtcResult::HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION);
        }
        if !state.expressions.contains(&expression) {
            state.expressions.push(expression);
        }
        Ok(())
    }

    /// The name is valid until the program is destroyed.
    fn hiprtcGetLoweredName(handle: hiprtcProgram, expression: *const c_char, name: *mut *const c_char) {
        let program = find(handle)?;
        let expression = text(expression)?;
        let state = program.state();
        if state.code.is_none() {
            return Err(hiprtcResult::HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION);
        }
        let found = state.lowered.iter().rfind(|(known, _)| *known == expression);
        let (_, symbol) = found.ok_or(hiprtcResult::HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID)?;
        put(name, symbol.as_ptr())
    }

    fn hiprtcGetProgramLogSize(handle: hiprtcProgram, size: *mut usize) {
        put(size, find(handle)?.state().log.len() + 1)
    }

    fn hiprtcGetProgramLog(handle: hiprtcProgram, log: *mut c_char) {
        let program = find(handle)?;
        let state = program.state();
        if log.is_null() {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
        }
        // The buffer has the size that `hiprtcGetProgramLogSize` returned.
        copy_text(state.log.as_bytes(), log, state.log.len() + 1);
        Ok(())
    }

    fn hiprtcGetCodeSize(handle: hiprtcProgram, size: *mut usize) {
        let program = find(handle)?;
        let state = program.state();
        let code = state.code.as_ref().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        put(size, code.len())
    }

    fn hiprtcGetCode(handle: hiprtcProgram, to: *mut c_char) {
        let program = find(handle)?;
        let state = program.state();
        let code = state.code.as_ref().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        if to.is_null() {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
        }
        // The buffer has the size that `hiprtcGetCodeSize` returned.
        ptr::copy_nonoverlapping(code.as_ptr().cast(), to, code.len());
        Ok(())
    }
}
