//! rocBLAS, computed on the CPU: GEMM in f32 (f64 for f64; exactly for i8), vectors in f64, each result rounded once.
//!
//! Arguments are checked as rocBLAS does, with its statuses. Work is submitted to the handle's stream. Scalars on the host are
//! read at once, those on the device when the work runs. A call with a result on the host waits. The real `rocblas_initialize`
//! ends the process if there is no device: here it does nothing.

mod gemm;
mod transfer;
mod vector;

use std::ffi::c_void;

use gcnrun::{FaultKind, Kind, Memory};
use hip_provider::rocblas::{put, run};
use hip_provider::{Objects, export};
use hipvit_sys::hip::{hipError_t, hipStream_t};
use hipvit_sys::rocblas::{
    self, rocblas_atomics_mode, rocblas_datatype, rocblas_handle, rocblas_math_mode, rocblas_operation,
    rocblas_pointer_mode, rocblas_status,
};

use crate::compute::{Element, Scalar, submit};
use crate::hip;

/// The version whose interface is implemented, in the format of ROCm 7.2.
const VERSION: &str = "5.2.0.hip-emu";

const INVALID_POINTER: rocblas_status = rocblas_status::rocblas_status_invalid_pointer;

/// The object behind a `rocblas_handle`.
#[derive(Clone, Debug)]
struct Handle {
    stream: Stream,
    pointers: rocblas_pointer_mode,
    atomics: rocblas_atomics_mode,
    math: rocblas_math_mode,
    /// The caller's workspace: its address and size.
    workspace: Option<(u64, usize)>,
}

/// A stream's handle, which may be used on other threads.
#[derive(Clone, Copy, Debug)]
struct Stream(usize);

static HANDLES: Objects<Handle> = Objects::new();

impl Handle {
    fn of(handle: rocblas_handle) -> Result<Self, rocblas_status> {
        HANDLES
            .get(handle)
            .ok_or(rocblas_status::rocblas_status_invalid_handle)
    }

    fn stream(&self) -> hipStream_t {
        std::ptr::with_exposed_provenance_mut(self.stream.0)
    }

    fn on_device(&self) -> bool {
        self.pointers == rocblas_pointer_mode::rocblas_pointer_mode_device
    }

    /// A factor, on the host or the device by the pointer mode.
    ///
    /// # Safety
    /// In host mode it is null or a number of this type.
    unsafe fn scalar(&self, at: *const c_void, element: Element) -> Result<Scalar, rocblas_status> {
        if at.is_null() {
            return Err(INVALID_POINTER);
        }
        // SAFETY: as the caller says.
        Ok(unsafe { Scalar::new(at, element, self.on_device()) })
    }

    fn submit(
        &self,
        name: &str,
        work: impl Fn(&Memory) -> Result<(), FaultKind> + Send + Sync + 'static,
    ) -> Result<(), rocblas_status> {
        submit(self.stream(), name, work).map_err(translate)
    }
}

/// rocBLAS's status for a status of HIP.
fn translate(status: hipError_t) -> rocblas_status {
    match status {
        hipError_t::hipErrorOutOfMemory => rocblas_status::rocblas_status_memory_error,
        hipError_t::hipErrorInvalidHandle | hipError_t::hipErrorContextIsDestroyed => {
            rocblas_status::rocblas_status_invalid_handle
        }
        hipError_t::hipErrorInvalidValue => rocblas_status::rocblas_status_invalid_value,
        _ => rocblas_status::rocblas_status_internal_error,
    }
}

fn is_transposed(operation: rocblas_operation) -> Result<bool, rocblas_status> {
    match operation {
        rocblas_operation::rocblas_operation_none => Ok(false),
        // For real numbers they are the same.
        rocblas_operation::rocblas_operation_transpose
        | rocblas_operation::rocblas_operation_conjugate_transpose => Ok(true),
        _ => Err(rocblas_status::rocblas_status_invalid_value),
    }
}

/// Complex and unsigned types are not supported.
fn element(datatype: rocblas_datatype) -> Result<Element, rocblas_status> {
    Ok(match datatype {
        rocblas_datatype::rocblas_datatype_f16_r => Element::F16,
        rocblas_datatype::rocblas_datatype_bf16_r => Element::Bf16,
        rocblas_datatype::rocblas_datatype_f32_r => Element::F32,
        rocblas_datatype::rocblas_datatype_f64_r => Element::F64,
        rocblas_datatype::rocblas_datatype_i8_r => Element::I8,
        rocblas_datatype::rocblas_datatype_i32_r => Element::I32,
        _ => return Err(rocblas_status::rocblas_status_not_implemented),
    })
}

fn size(value: i32) -> Result<usize, rocblas_status> {
    usize::try_from(value).map_err(|_| rocblas_status::rocblas_status_invalid_size)
}

fn version() -> Result<&'static str, rocblas_status> {
    Ok(VERSION)
}

/// Changes a handle.
fn set(handle: rocblas_handle, change: impl FnOnce(&mut Handle)) -> Result<(), rocblas_status> {
    HANDLES
        .change(handle, change)
        .ok_or(rocblas_status::rocblas_status_invalid_handle)
}

export! { rocblas, rocblas_status, run;
    fn rocblas_create_handle(to: *mut rocblas_handle) {
        hip::current().map_err(|_| rocblas_status::rocblas_status_internal_error)?;
        if to.is_null() {
            return Err(rocblas_status::rocblas_status_invalid_handle);
        }
        put(to, HANDLES.add(Handle {
            stream: Stream(0),
            pointers: rocblas_pointer_mode::rocblas_pointer_mode_host,
            atomics: rocblas_atomics_mode::rocblas_atomics_allowed,
            math: rocblas_math_mode::rocblas_default_math,
            workspace: None,
        }))
    }

    /// Waits for the handle's work, as rocBLAS does.
    fn rocblas_destroy_handle(of: rocblas_handle) {
        let handle = HANDLES.remove(of).ok_or(rocblas_status::rocblas_status_invalid_handle)?;
        hip::synchronize(handle.stream()).map_err(translate)
    }

    fn rocblas_set_stream(of: rocblas_handle, stream: hipStream_t) {
        set(of, |handle| handle.stream = Stream(stream.expose_provenance()))
    }

    fn rocblas_get_stream(of: rocblas_handle, stream: *mut hipStream_t) {
        put(stream, Handle::of(of)?.stream())
    }

    fn rocblas_set_pointer_mode(of: rocblas_handle, mode: rocblas_pointer_mode) {
        if mode.0 > 1 {
            return Err(rocblas_status::rocblas_status_invalid_value);
        }
        set(of, |handle| handle.pointers = mode)
    }

    fn rocblas_get_pointer_mode(of: rocblas_handle, mode: *mut rocblas_pointer_mode) {
        put(mode, Handle::of(of)?.pointers)
    }

    /// Has no effect: the order of summation is always the same.
    fn rocblas_set_atomics_mode(of: rocblas_handle, mode: rocblas_atomics_mode) {
        if mode.0 > 1 {
            return Err(rocblas_status::rocblas_status_invalid_value);
        }
        set(of, |handle| handle.atomics = mode)
    }

    fn rocblas_get_atomics_mode(of: rocblas_handle, mode: *mut rocblas_atomics_mode) {
        put(mode, Handle::of(of)?.atomics)
    }

    /// Has no effect: f32 is never rounded to xf32.
    fn rocblas_set_math_mode(of: rocblas_handle, mode: rocblas_math_mode) {
        if mode.0 > 1 {
            return Err(rocblas_status::rocblas_status_invalid_value);
        }
        set(of, |handle| handle.math = mode)
    }

    fn rocblas_get_math_mode(of: rocblas_handle, mode: *mut rocblas_math_mode) {
        put(mode, Handle::of(of)?.math)
    }

    /// GEMMs overwrite the workspace.
    fn rocblas_set_workspace(of: rocblas_handle, workspace: *mut c_void, size: usize) {
        let workspace = (!workspace.is_null()).then(|| (workspace.expose_provenance() as u64, size));
        set(of, |handle| handle.workspace = workspace)
    }

    fn rocblas_get_device_memory_size(of: rocblas_handle, size: *mut usize) {
        put(size, Handle::of(of)?.workspace.map_or(0, |(_, size)| size))
    }
}

hip_provider::shared_rocblas!(version);

/// Host, unless the address is in device memory.
#[unsafe(no_mangle)]
extern "C" fn rocblas_pointer_to_mode(pointer: *mut c_void) -> rocblas_pointer_mode {
    let address = pointer.expose_provenance() as u64;
    let found = hip::memory().ok().and_then(|memory| memory.find(address));
    if found.is_some_and(|found| found.live && matches!(found.kind, Kind::Device(_))) {
        rocblas_pointer_mode::rocblas_pointer_mode_device
    } else {
        rocblas_pointer_mode::rocblas_pointer_mode_host
    }
}
const _: rocblas::prototypes::rocblas_pointer_to_mode = rocblas_pointer_to_mode;

#[unsafe(no_mangle)]
extern "C" fn rocblas_is_user_managing_device_memory(of: rocblas_handle) -> bool {
    Handle::of(of).is_ok_and(|handle| handle.workspace.is_some())
}
const _: rocblas::prototypes::rocblas_is_user_managing_device_memory = rocblas_is_user_managing_device_memory;

#[unsafe(no_mangle)]
extern "C" fn rocblas_is_managing_device_memory(of: rocblas_handle) -> bool {
    Handle::of(of).is_ok_and(|handle| handle.workspace.is_none())
}
const _: rocblas::prototypes::rocblas_is_managing_device_memory = rocblas_is_managing_device_memory;
