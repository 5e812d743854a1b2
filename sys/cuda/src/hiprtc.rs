//! hipRTC on NVRTC.
//!
//! A program's code is a cubin for the architecture of `--offload-arch=sm_90`, or of the thread's device if no option names one.
//! It is PTX for a virtual architecture such as `compute_90`, and if there is neither an option nor a device. AMD's architectures
//! are rejected, with the reason in the program's log.

mod options;

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use cudarc::nvrtc::sys::nvrtcProgram;
use hip_provider::export;
use hip_provider::hiprtc::run;
use hipvit_sys::hiprtc::{hiprtcProgram, hiprtcResult};

use crate::hip::device_arch;
use crate::library::{Missing, call};

/// The target of a `hiprtcProgram`.
struct Program {
    nvrtc: nvrtcProgram,
    /// Text that precedes NVRTC's own log.
    message: CString,
}

fn check(called: Result<u32, Missing>) -> Result<(), hiprtcResult> {
    match called {
        Ok(0) => Ok(()),
        // The first eleven have hipRTC's values; the later ones are about files and precompiled headers.
        Ok(status @ 1..=11) => Err(hiprtcResult(status)),
        _ => Err(hiprtcResult::HIPRTC_ERROR_INTERNAL_ERROR),
    }
}

macro_rules! nvrtc {
    ($function:ident($($argument:expr),* $(,)?)) => {
        check(call!(NVRTC, nvrtc, $function($($argument),*)))
    };
}

/// The program of a handle.
///
/// # Safety
/// The handle is null, or was made by `hiprtcCreateProgram` and not destroyed, and no other thread uses it.
unsafe fn program<'a>(handle: hiprtcProgram) -> Result<&'a mut Program, hiprtcResult> {
    // SAFETY: as the caller says.
    unsafe { handle.cast::<Program>().as_mut() }.ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)
}

/// The size of the machine code; 0 if the program was compiled to PTX.
unsafe fn cubin_size(program: &Program) -> Result<usize, hiprtcResult> {
    let mut size = 0;
    // SAFETY: `size` is a number that the call may write.
    unsafe { nvrtc!(nvrtcGetCUBINSize(program.nvrtc, &mut size))? };
    Ok(size)
}

/// The size of NVRTC's log with the terminating zero.
unsafe fn nvrtc_log_size(program: &Program) -> Result<usize, hiprtcResult> {
    let mut size = 0;
    // SAFETY: `size` is a number that the call may write.
    unsafe { nvrtc!(nvrtcGetProgramLogSize(program.nvrtc, &mut size))? };
    Ok(size)
}

hip_provider::shared_hiprtc!();

export! { hiprtc, hiprtcResult, run;
    fn hiprtcVersion(major: *mut i32, minor: *mut i32) {
        nvrtc!(nvrtcVersion(major, minor))
    }

    fn hiprtcCreateProgram(
        to: *mut hiprtcProgram, source: *const c_char, name: *const c_char, count: i32,
        headers: *const *const c_char, names: *const *const c_char,
    ) {
        if to.is_null() || source.is_null() {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
        }
        let mut program: nvrtcProgram = ptr::null_mut();
        nvrtc!(nvrtcCreateProgram(&mut program, source, name, count, headers, names))?;
        to.write(Box::into_raw(Box::new(Program { nvrtc: program, message: CString::default() })).cast());
        Ok(())
    }

    fn hiprtcDestroyProgram(handle: *mut hiprtcProgram) {
        let handle = handle.as_mut().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?;
        program(*handle)?;
        // It was made by `Box::into_raw` above, and its handle is cleared here.
        let mut program = Box::from_raw(handle.cast::<Program>());
        *handle = ptr::null_mut();
        nvrtc!(nvrtcDestroyProgram(&mut program.nvrtc))
    }

    fn hiprtcAddNameExpression(handle: hiprtcProgram, expression: *const c_char) {
        nvrtc!(nvrtcAddNameExpression(program(handle)?.nvrtc, expression))
    }

    fn hiprtcCompileProgram(handle: hiprtcProgram, count: i32, given: *const *const c_char) {
        let program = program(handle)?;
        let count = usize::try_from(count).map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_INPUT)?;
        let mut given: Vec<&CStr> = (0..count).map(|index| CStr::from_ptr(*given.add(index))).collect();
        let arch = device_arch();
        match options::translate(&mut given, arch.as_deref()) {
            Ok(options) => {
                program.message = CString::default();
                let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
                nvrtc!(nvrtcCompileProgram(program.nvrtc, options.len() as i32, options.as_ptr()))
            }
            Err(message) => {
                program.message = message;
                Err(hiprtcResult::HIPRTC_ERROR_INVALID_OPTION)
            }
        }
    }

    fn hiprtcGetProgramLogSize(handle: hiprtcProgram, size: *mut usize) {
        let program = program(handle)?;
        size.write(program.message.as_bytes().len() + nvrtc_log_size(program)?.max(1));
        Ok(())
    }

    fn hiprtcGetProgramLog(handle: hiprtcProgram, log: *mut c_char) {
        let program = program(handle)?;
        let message = program.message.as_bytes();
        // The buffer has the size that `hiprtcGetProgramLogSize` returned.
        ptr::copy_nonoverlapping(message.as_ptr().cast(), log, message.len());
        let rest = log.add(message.len());
        rest.write(0);
        if nvrtc_log_size(program)? > 0 {
            nvrtc!(nvrtcGetProgramLog(program.nvrtc, rest))?;
        }
        Ok(())
    }

    fn hiprtcGetCodeSize(handle: hiprtcProgram, size: *mut usize) {
        let program = program(handle)?;
        let cubin = cubin_size(program)?;
        if cubin == 0 {
            return nvrtc!(nvrtcGetPTXSize(program.nvrtc, size));
        }
        size.write(cubin);
        Ok(())
    }

    fn hiprtcGetCode(handle: hiprtcProgram, code: *mut c_char) {
        let program = program(handle)?;
        if cubin_size(program)? == 0 {
            return nvrtc!(nvrtcGetPTX(program.nvrtc, code));
        }
        nvrtc!(nvrtcGetCUBIN(program.nvrtc, code))
    }

    fn hiprtcGetLoweredName(handle: hiprtcProgram, expression: *const c_char, name: *mut *const c_char) {
        nvrtc!(nvrtcGetLoweredName(program(handle)?.nvrtc, expression, name))
    }
}
