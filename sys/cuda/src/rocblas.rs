//! rocBLAS on cuBLAS. A handle is cuBLAS's handle, cast.
//!
//! cuBLAS's default math is used, in which f32 GEMMs are computed in f32; rocBLAS's `xf32` mode is TF32 here.

mod gemm;
mod vector;

use std::ffi::c_void;

use hip_provider::rocblas::run;
use hip_provider::{export, not_offered};
use hipvit_sys::hip::hipStream_t;
use hipvit_sys::rocblas::{
    self, rocblas_atomics_mode, rocblas_datatype, rocblas_handle, rocblas_math_mode, rocblas_operation,
    rocblas_pointer_mode, rocblas_status,
};

use crate::hip::bound;
use crate::library::{Missing, call};

/// cuBLAS's handle type.
type Handle = cudarc::cublas::sys::cublasHandle_t;

fn check(called: Result<u32, Missing>) -> Result<(), rocblas_status> {
    Err(match called {
        Ok(0) => return Ok(()),
        Ok(1) => rocblas_status::rocblas_status_invalid_handle,
        Ok(3) => rocblas_status::rocblas_status_memory_error,
        Ok(7) => rocblas_status::rocblas_status_invalid_value,
        Ok(8) => rocblas_status::rocblas_status_arch_mismatch,
        Ok(15) | Err(Missing::Function) => rocblas_status::rocblas_status_not_implemented,
        // As rocBLAS returns without a device.
        Ok(_) | Err(Missing::Library) => rocblas_status::rocblas_status_internal_error,
    })
}

/// Runs an exported function that works on the thread's device.
fn on_device(body: impl FnOnce() -> Result<(), rocblas_status>) -> rocblas_status {
    run(|| {
        bound().map_err(|_| rocblas_status::rocblas_status_internal_error)?;
        body()
    })
}

/// Calls a function of cuBLAS: `Ok(())`, or rocBLAS's status for cuBLAS's. Use it inside an unsafe block.
macro_rules! cublas {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::rocblas::check($crate::library::call!(CUBLAS, cublas, $function($($argument),*)))
    };
}
use cublas;

/// A handle, unless it is null.
fn handle(handle: rocblas_handle) -> Result<Handle, rocblas_status> {
    if handle.is_null() {
        Err(rocblas_status::rocblas_status_invalid_handle)
    } else {
        Ok(handle.cast())
    }
}

fn operation(operation: rocblas_operation) -> Result<u32, rocblas_status> {
    match operation {
        rocblas_operation::rocblas_operation_none => Ok(0),
        rocblas_operation::rocblas_operation_transpose => Ok(1),
        rocblas_operation::rocblas_operation_conjugate_transpose => Ok(2),
        _ => Err(rocblas_status::rocblas_status_invalid_value),
    }
}

/// CUDA's value for an element type, and its size.
fn datatype(datatype: rocblas_datatype) -> Result<(u32, usize), rocblas_status> {
    Ok(match datatype {
        rocblas_datatype::rocblas_datatype_f32_r => (0, 4),
        rocblas_datatype::rocblas_datatype_f64_r => (1, 8),
        rocblas_datatype::rocblas_datatype_f16_r => (2, 2),
        rocblas_datatype::rocblas_datatype_i8_r => (3, 1),
        rocblas_datatype::rocblas_datatype_f32_c => (4, 8),
        rocblas_datatype::rocblas_datatype_f64_c => (5, 16),
        rocblas_datatype::rocblas_datatype_f16_c => (6, 4),
        rocblas_datatype::rocblas_datatype_i8_c => (7, 2),
        rocblas_datatype::rocblas_datatype_u8_r => (8, 1),
        rocblas_datatype::rocblas_datatype_i32_r => (10, 4),
        rocblas_datatype::rocblas_datatype_bf16_r => (14, 2),
        rocblas_datatype::rocblas_datatype_bf16_c => (15, 4),
        _ => return Err(rocblas_status::rocblas_status_not_implemented),
    })
}

/// The installed cuBLAS's version, such as `cuBLAS 13.0.2`.
fn version() -> Result<String, rocblas_status> {
    let mut parts = [0; 3];
    for (kind, part) in (0..).zip(&mut parts) {
        // SAFETY: `part` is a number that the call may write.
        unsafe { cublas!(cublasGetProperty(kind, part))? };
    }
    let [major, minor, patch] = parts;
    Ok(format!("cuBLAS {major}.{minor}.{patch}"))
}

export! { rocblas, rocblas_status, on_device;
    fn rocblas_create_handle(to: *mut rocblas_handle) {
        if to.is_null() {
            return Err(rocblas_status::rocblas_status_invalid_pointer);
        }
        cublas!(cublasCreate_v2(to.cast()))
    }

    fn rocblas_destroy_handle(of: rocblas_handle) {
        cublas!(cublasDestroy_v2(handle(of)?))
    }

    fn rocblas_set_stream(of: rocblas_handle, stream: hipStream_t) {
        cublas!(cublasSetStream_v2(handle(of)?, stream.cast()))
    }

    fn rocblas_get_stream(of: rocblas_handle, stream: *mut hipStream_t) {
        cublas!(cublasGetStream_v2(handle(of)?, stream.cast()))
    }

    /// Modes have cuBLAS's values.
    fn rocblas_set_pointer_mode(of: rocblas_handle, mode: rocblas_pointer_mode) {
        cublas!(cublasSetPointerMode_v2(handle(of)?, mode.0))
    }

    fn rocblas_get_pointer_mode(of: rocblas_handle, mode: *mut rocblas_pointer_mode) {
        cublas!(cublasGetPointerMode_v2(handle(of)?, mode.cast()))
    }

    fn rocblas_set_atomics_mode(of: rocblas_handle, mode: rocblas_atomics_mode) {
        cublas!(cublasSetAtomicsMode(handle(of)?, mode.0))
    }

    fn rocblas_get_atomics_mode(of: rocblas_handle, mode: *mut rocblas_atomics_mode) {
        cublas!(cublasGetAtomicsMode(handle(of)?, mode.cast()))
    }

    fn rocblas_set_math_mode(of: rocblas_handle, mode: rocblas_math_mode) {
        cublas!(cublasSetMathMode(handle(of)?, match mode {
            rocblas_math_mode::rocblas_default_math => MATH_DEFAULT,
            rocblas_math_mode::rocblas_xf32_xdl_math_op => MATH_TF32,
            _ => return Err(rocblas_status::rocblas_status_invalid_value),
        }))
    }

    fn rocblas_get_math_mode(of: rocblas_handle, mode: *mut rocblas_math_mode) {
        let mut found = MATH_DEFAULT;
        cublas!(cublasGetMathMode(handle(of)?, (&raw mut found).cast()))?;
        mode.write(match found {
            MATH_TF32 => rocblas_math_mode::rocblas_xf32_xdl_math_op,
            _ => rocblas_math_mode::rocblas_default_math,
        });
        Ok(())
    }

    fn rocblas_set_workspace(of: rocblas_handle, workspace: *mut c_void, size: usize) {
        cublas!(cublasSetWorkspace_v2(handle(of)?, workspace, size))
    }
}

const MATH_DEFAULT: u32 = cudarc::cublas::sys::cublasMath_t::CUBLAS_DEFAULT_MATH as u32;
const MATH_TF32: u32 = cudarc::cublas::sys::cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH as u32;

hip_provider::shared_rocblas!(version);

/// Host, unless the driver reports device memory.
#[unsafe(no_mangle)]
extern "C" fn rocblas_pointer_to_mode(pointer: *mut c_void) -> rocblas_pointer_mode {
    const DEVICE: u32 = cudarc::driver::sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
    const ATTRIBUTE: u32 = cudarc::driver::sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;
    let mut kind = 0_u32;
    let address = pointer.expose_provenance() as u64;
    // SAFETY: `kind` is a number that the call may write.
    let found = bound().is_ok_and(|()| unsafe {
        call!(
            CUDA,
            driver,
            cuPointerGetAttribute((&raw mut kind).cast(), ATTRIBUTE, address)
        ) == Ok(0)
    });
    if found && kind == DEVICE {
        rocblas_pointer_mode::rocblas_pointer_mode_device
    } else {
        rocblas_pointer_mode::rocblas_pointer_mode_host
    }
}
const _: rocblas::prototypes::rocblas_pointer_to_mode = rocblas_pointer_to_mode;

// cuBLAS has neither lists of solutions nor queries of workspace sizes.
not_offered! { rocblas, rocblas_status, rocblas_status::rocblas_status_not_implemented;
    rocblas_get_device_memory_size
    rocblas_gemm_ex_get_solutions
    rocblas_gemm_ex_get_solutions_by_type
    rocblas_gemm_batched_ex_get_solutions
    rocblas_gemm_batched_ex_get_solutions_by_type
    rocblas_gemm_strided_batched_ex_get_solutions
}

not_offered! { rocblas, bool, false;
    rocblas_is_managing_device_memory
    rocblas_is_user_managing_device_memory
}
