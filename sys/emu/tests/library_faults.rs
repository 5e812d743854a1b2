//! Invalid operands of a library call are a fault of the device, reported like a kernel's. In a test binary of its own, since a
//! faulted device cannot be used by other tests; and in one test, one fault after another.
#![allow(clippy::expect_used, clippy::undocumented_unsafe_blocks, reason = "a test")]

#[path = "libraries/gpu.rs"]
#[allow(dead_code, reason = "the other test uses more of it")]
mod gpu;

use std::ffi::c_void;
use std::ptr;

use hipvit_sys::hip::hipError_t;
use hipvit_sys::rocblas::rocblas_operation_;

use gpu::{Buffer, Kind, hip, ok, provider};

/// An 8×8 GEMM by rocBLAS on these operands, and the device's status.
fn multiply(a: *const c_void, c: *mut c_void, workspace: *mut c_void) -> hipError_t {
    let blas = provider().rocblas().expect("rocBLAS");
    let mut handle = ptr::null_mut();
    let (alpha, beta) = (1.0_f32, 0.0_f32);
    let plain = rocblas_operation_::rocblas_operation_none;
    unsafe {
        ok(blas.rocblas_create_handle(&mut handle));
        ok(blas.rocblas_set_workspace(handle, workspace, 256));
        ok(blas.rocblas_sgemm(
            handle,
            plain,
            plain,
            8,
            8,
            8,
            &alpha,
            a.cast(),
            8,
            a.cast(),
            8,
            &beta,
            c.cast(),
            8,
        ));
        let outcome = hip().hipDeviceSynchronize().expect("the function");
        let _ = blas.rocblas_destroy_handle(handle);
        ok(hip().hipDeviceReset());
        outcome
    }
}

#[test]
fn faults_of_operands_are_reported() {
    let allocate = |bytes| {
        let mut memory = ptr::null_mut();
        ok(unsafe { hip().hipMalloc(&mut memory, bytes) });
        memory
    };
    let none = ptr::null_mut();
    // Valid operands are no fault, before and after the others.
    let right = || {
        let (a, c) = (Buffer::new(Kind::F32, &[1.0; 64]), allocate(256));
        assert_eq!(multiply(a.address(), c, none), hipError_t::hipSuccess);
        std::mem::forget(a);
    };
    right();

    let (a, short) = (Buffer::new(Kind::F32, &[1.0; 64]), allocate(252));
    assert_eq!(
        multiply(a.address(), short, none),
        hipError_t::hipErrorIllegalAddress
    );
    std::mem::forget(a);

    let (unwritten, c) = (allocate(256), allocate(256));
    assert_eq!(multiply(unwritten, c, none), hipError_t::hipErrorLaunchFailure);

    let (a, freed) = (Buffer::new(Kind::F32, &[1.0; 64]), allocate(256));
    ok(unsafe { hip().hipFree(freed) });
    assert_eq!(
        multiply(a.address(), freed, none),
        hipError_t::hipErrorIllegalAddress
    );
    std::mem::forget(a);

    let (a, c, scratch) = (Buffer::new(Kind::F32, &[1.0; 64]), allocate(256), allocate(256));
    ok(unsafe { hip().hipFree(scratch) });
    assert_eq!(
        multiply(a.address(), c, scratch),
        hipError_t::hipErrorIllegalAddress
    );
    std::mem::forget(a);

    right();
}
