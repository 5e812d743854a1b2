//! rocBLAS's GEMM in f32, column-major, as plain loops.

use std::ffi::c_void;
use std::sync::Mutex;

use super::{LAUNCH_FAILURE, SUCCESS, Slot, Status, access, add, launch, queue, rocprofiler};

const TRANSPOSE: u32 = 112;
const F32: u32 = 151;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocblas_create_handle(out: *mut *mut c_void) -> Status {
    add(Slot::Handles, 1);
    unsafe { *out = Box::into_raw(Box::new(Mutex::new(0usize))).cast() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn rocblas_destroy_handle(handle: *mut c_void) -> Status {
    drop(unsafe { Box::from_raw(handle.cast::<Mutex<usize>>()) });
    add(Slot::Handles, -1);
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn rocblas_set_stream(handle: *mut c_void, stream: usize) -> Status {
    *unsafe { &*handle.cast::<Mutex<usize>>() }.lock().unwrap() = stream;
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn rocblas_set_atomics_mode(_handle: *mut c_void, _mode: u32) -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn rocblas_set_workspace(_handle: *mut c_void, address: usize, bytes: usize) -> Status {
    if access(address, bytes) { SUCCESS } else { 2 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocblas_gemm_ex(
    handle: *mut c_void,
    ta: u32,
    tb: u32,
    m: i32,
    n: i32,
    k: i32,
    alpha: *const f32,
    a: usize,
    a_type: u32,
    lda: i32,
    b: usize,
    b_type: u32,
    ldb: i32,
    beta: *const f32,
    c: usize,
    c_type: u32,
    ldc: i32,
    d: usize,
    d_type: u32,
    ldd: i32,
    compute: u32,
    algo: u32,
    solution: i32,
    flags: u32,
) -> Status {
    unsafe {
        rocblas_gemm_strided_batched_ex(
            handle, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0, d,
            d_type, ldd, 0, 1, compute, algo, solution, flags,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocblas_gemm_strided_batched_ex(
    handle: *mut c_void,
    ta: u32,
    tb: u32,
    m: i32,
    n: i32,
    k: i32,
    alpha: *const f32,
    a: usize,
    a_type: u32,
    lda: i32,
    stride_a: i64,
    b: usize,
    b_type: u32,
    ldb: i32,
    stride_b: i64,
    beta: *const f32,
    _c: usize,
    c_type: u32,
    _ldc: i32,
    _stride_c: i64,
    d: usize,
    d_type: u32,
    ldd: i32,
    stride_d: i64,
    batch: i32,
    compute: u32,
    _algo: u32,
    _solution: i32,
    _flags: u32,
) -> Status {
    if [a_type, b_type, c_type, d_type, compute]
        .iter()
        .any(|&t| t != F32)
    {
        return 2;
    }
    let (alpha, beta) = unsafe { (*alpha, *beta) };
    let stream = *unsafe { &*handle.cast::<Mutex<usize>>() }.lock().unwrap();
    let counted = rocprofiler::launch(launch::GEMM.0, launch::GEMM.1, batch as u64);
    queue::submit(stream as *mut c_void, move || {
        let at = |base: usize, index: i64| (base as i64 + 4 * index) as usize;
        let (lda, ldb, ldd) = (i64::from(lda), i64::from(ldb), i64::from(ldd));
        let (wide, high, deep) = (i64::from(m), i64::from(n), i64::from(k));
        let stored = |turned, rows, columns| if turned { (columns, rows) } else { (rows, columns) };
        for (base, stride, ld, (rows, columns)) in [
            (a, stride_a, lda, stored(ta == TRANSPOSE, wide, deep)),
            (b, stride_b, ldb, stored(tb == TRANSPOSE, deep, high)),
            (d, stride_d, ldd, (wide, high)),
        ] {
            let elements = (i64::from(batch) - 1) * stride + (columns - 1) * ld + rows;
            if !access(base, 4 * elements as usize) {
                return LAUNCH_FAILURE;
            }
        }
        let load = |base, index| unsafe { *(at(base, index) as *const f32) };
        for z in 0..i64::from(batch) {
            for column in 0..i64::from(n) {
                for row in 0..i64::from(m) {
                    let mut sum = 0.0;
                    for inner in 0..i64::from(k) {
                        let left = if ta == TRANSPOSE {
                            inner + row * lda
                        } else {
                            row + inner * lda
                        };
                        let right = if tb == TRANSPOSE {
                            column + inner * ldb
                        } else {
                            inner + column * ldb
                        };
                        sum += load(a, z * stride_a + left) * load(b, z * stride_b + right);
                    }
                    let index = z * stride_d + row + column * ldd;
                    let old = if beta == 0.0 { 0.0 } else { beta * load(d, index) };
                    unsafe { *(at(d, index) as *mut f32) = alpha * sum + old };
                }
            }
        }
        counted();
        SUCCESS
    })
}
