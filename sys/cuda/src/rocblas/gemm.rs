//! GEMM.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};
use hip_provider::export;
use hipvit_sys::rocblas::{
    rocblas_datatype, rocblas_gemm_algo, rocblas_half, rocblas_handle, rocblas_operation, rocblas_status,
    rocblas_stride,
};

use super::{Handle, cublas, datatype, handle, on_device, operation};
use crate::hip::cu;

/// cuBLAS's default algorithm: -1.
const ALGORITHM: u32 = (-1_i32).cast_unsigned();

/// CUDA's value for f16, and cuBLAS's for the f16 compute type.
const HALF: u32 = cudarc::cublas::sys::cudaDataType_t::CUDA_R_16F as u32;
const COMPUTE_HALF: u32 = cudarc::cublas::sys::cublasComputeType_t::CUBLAS_COMPUTE_16F as u32;

/// cuBLAS's compute type.
fn compute(of: rocblas_datatype) -> Result<u32, rocblas_status> {
    use cudarc::cublas::sys::cublasComputeType_t as Compute;
    Ok(match of {
        rocblas_datatype::rocblas_datatype_f16_r => Compute::CUBLAS_COMPUTE_16F as u32,
        rocblas_datatype::rocblas_datatype_f32_r | rocblas_datatype::rocblas_datatype_f32_c => {
            Compute::CUBLAS_COMPUTE_32F as u32
        }
        rocblas_datatype::rocblas_datatype_f64_r | rocblas_datatype::rocblas_datatype_f64_c => {
            Compute::CUBLAS_COMPUTE_64F as u32
        }
        rocblas_datatype::rocblas_datatype_i32_r => Compute::CUBLAS_COMPUTE_32I as u32,
        _ => return Err(rocblas_status::rocblas_status_not_implemented),
    })
}

/// Rejects all solutions but the default, because cuBLAS has no list of solutions.
fn check_solution(algorithm: rocblas_gemm_algo, solution: i32) -> Result<(), rocblas_status> {
    if algorithm == rocblas_gemm_algo::rocblas_gemm_algo_solution_index && solution != 0 {
        return Err(rocblas_status::rocblas_status_not_implemented);
    }
    Ok(())
}

/// One of the matrices C and D: its memory, leading dimension and batch stride.
#[derive(Clone, Copy)]
struct Output {
    memory: *mut c_void,
    leading: i32,
    stride: i64,
}

/// rocBLAS reads C and writes D; cuBLAS overwrites C. So C is first copied to D, unless they are one matrix, or
/// `beta` is known to be zero.
///
/// # Safety
/// The matrices have the given rows, columns and batch, with elements of `size` bytes. `beta` has the type `compute` and is in
/// the memory that the handle's pointer mode says.
#[allow(clippy::too_many_arguments, reason = "the shape of one GEMM")]
unsafe fn copy_to_output(
    of: Handle,
    c: Output,
    d: Output,
    size: usize,
    (rows, columns, batch): (i32, i32, i32),
    beta: *const c_void,
    compute: rocblas_datatype,
) -> Result<(), rocblas_status> {
    if c.memory == d.memory && c.leading == d.leading && (c.stride == d.stride || batch <= 1) {
        return Ok(());
    }
    let mut mode = 0_u32;
    let mut stream = ptr::null_mut();
    // SAFETY: both are values that the calls may write.
    unsafe {
        cublas!(cublasGetPointerMode_v2(of, (&raw mut mode).cast()))?;
        cublas!(cublasGetStream_v2(of, &mut stream))?;
    }
    // SAFETY: in host mode (0) `beta` is a number on the host, as long as its type is.
    if mode == 0 && unsafe { is_zero(beta, compute)? } {
        return Ok(());
    }
    let positive =
        |value: i32| usize::try_from(value).map_err(|_| rocblas_status::rocblas_status_invalid_size);
    let (rows, columns) = (positive(rows)?, positive(columns)?);
    for index in 0..i64::from(batch) {
        let at = |matrix: Output| {
            let offset = index.wrapping_mul(matrix.stride).wrapping_mul(size as i64);
            (matrix.memory.expose_provenance() as u64).wrapping_add_signed(offset)
        };
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: ptr::null(),
            srcDevice: at(c),
            srcArray: ptr::null_mut(),
            srcPitch: positive(c.leading)? * size,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: at(d),
            dstArray: ptr::null_mut(),
            dstPitch: positive(d.leading)? * size,
            WidthInBytes: rows * size,
            Height: columns,
        };
        // SAFETY: the caller answers for the matrices.
        let copied = unsafe { cu!(cuMemcpy2DAsync_v2(&copy, stream.cast())) };
        copied.map_err(|_| rocblas_status::rocblas_status_internal_error)?;
    }
    Ok(())
}

/// True if a factor is zero, of either sign.
unsafe fn is_zero(factor: *const c_void, of: rocblas_datatype) -> Result<bool, rocblas_status> {
    // SAFETY: the caller's number has this type.
    unsafe {
        Ok(match of {
            rocblas_datatype::rocblas_datatype_f16_r => factor.cast::<u16>().read() & 0x7fff == 0,
            rocblas_datatype::rocblas_datatype_f32_r => factor.cast::<f32>().read() == 0.0,
            rocblas_datatype::rocblas_datatype_f64_r => factor.cast::<f64>().read() == 0.0,
            rocblas_datatype::rocblas_datatype_i32_r => factor.cast::<i32>().read() == 0,
            rocblas_datatype::rocblas_datatype_f32_c => factor.cast::<[f32; 2]>().read() == [0.0; 2],
            rocblas_datatype::rocblas_datatype_f64_c => factor.cast::<[f64; 2]>().read() == [0.0; 2],
            _ => return Err(rocblas_status::rocblas_status_not_implemented),
        })
    }
}

export! { rocblas, rocblas_status, on_device;
    fn rocblas_gemm_ex(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const c_void, a: *const c_void, a_type: rocblas_datatype, lda: i32, b: *const c_void,
        b_type: rocblas_datatype, ldb: i32, beta: *const c_void, c: *const c_void, c_type: rocblas_datatype, ldc: i32,
        d: *mut c_void, d_type: rocblas_datatype, ldd: i32, compute_type: rocblas_datatype,
        algorithm: rocblas_gemm_algo, solution: i32, _flags: u32,
    ) {
        check_solution(algorithm, solution)?;
        if c_type != d_type {
            return Err(rocblas_status::rocblas_status_not_implemented);
        }
        let of = handle(of)?;
        let (c_number, size) = datatype(c_type)?;
        copy_to_output(
            of, Output { memory: c.cast_mut(), leading: ldc, stride: 0 },
            Output { memory: d, leading: ldd, stride: 0 }, size, (m, n, 1), beta, compute_type,
        )?;
        cublas!(cublasGemmEx(
            of, operation(op_a)?, operation(op_b)?, m, n, k, alpha, a, datatype(a_type)?.0, lda, b,
            datatype(b_type)?.0, ldb, beta, d, c_number, ldd, compute(compute_type)?, ALGORITHM,
        ))
    }

    fn rocblas_gemm_strided_batched_ex(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const c_void, a: *const c_void, a_type: rocblas_datatype, lda: i32, stride_a: rocblas_stride,
        b: *const c_void, b_type: rocblas_datatype, ldb: i32, stride_b: rocblas_stride, beta: *const c_void,
        c: *const c_void, c_type: rocblas_datatype, ldc: i32, stride_c: rocblas_stride, d: *mut c_void,
        d_type: rocblas_datatype, ldd: i32, stride_d: rocblas_stride, batch: i32, compute_type: rocblas_datatype,
        algorithm: rocblas_gemm_algo, solution: i32, _flags: u32,
    ) {
        check_solution(algorithm, solution)?;
        if c_type != d_type {
            return Err(rocblas_status::rocblas_status_not_implemented);
        }
        let of = handle(of)?;
        let (c_number, size) = datatype(c_type)?;
        copy_to_output(
            of, Output { memory: c.cast_mut(), leading: ldc, stride: stride_c },
            Output { memory: d, leading: ldd, stride: stride_d }, size, (m, n, batch), beta, compute_type,
        )?;
        cublas!(cublasGemmStridedBatchedEx(
            of, operation(op_a)?, operation(op_b)?, m, n, k, alpha, a, datatype(a_type)?.0, lda, stride_a, b,
            datatype(b_type)?.0, ldb, stride_b, beta, d, c_number, ldd, stride_d, batch, compute(compute_type)?,
            ALGORITHM,
        ))
    }

    /// C and D must be the same array of pointers, as it is in device memory.
    fn rocblas_gemm_batched_ex(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const c_void, a: *const c_void, a_type: rocblas_datatype, lda: i32, b: *const c_void,
        b_type: rocblas_datatype, ldb: i32, beta: *const c_void, c: *const c_void, c_type: rocblas_datatype, ldc: i32,
        d: *mut c_void, d_type: rocblas_datatype, ldd: i32, batch: i32, compute_type: rocblas_datatype,
        algorithm: rocblas_gemm_algo, solution: i32, _flags: u32,
    ) {
        check_solution(algorithm, solution)?;
        if c_type != d_type || c != d.cast_const() || ldc != ldd {
            return Err(rocblas_status::rocblas_status_not_implemented);
        }
        cublas!(cublasGemmBatchedEx(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, k, alpha, a.cast(), datatype(a_type)?.0, lda,
            b.cast(), datatype(b_type)?.0, ldb, beta, d.cast(), datatype(c_type)?.0, ldc, batch,
            compute(compute_type)?, ALGORITHM,
        ))
    }

    fn rocblas_sgemm(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const f32, a: *const f32, lda: i32, b: *const f32, ldb: i32, beta: *const f32, c: *mut f32, ldc: i32,
    ) {
        cublas!(cublasSgemm_v2(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,
        ))
    }

    fn rocblas_hgemm(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const rocblas_half, a: *const rocblas_half, lda: i32, b: *const rocblas_half, ldb: i32,
        beta: *const rocblas_half, c: *mut rocblas_half, ldc: i32,
    ) {
        cublas!(cublasGemmEx(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, k, alpha.cast(), a.cast(), HALF, lda, b.cast(),
            HALF, ldb, beta.cast(), c.cast(), HALF, ldc, COMPUTE_HALF, ALGORITHM,
        ))
    }

    fn rocblas_sgemm_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const f32, a: *const *const f32, lda: i32, b: *const *const f32, ldb: i32, beta: *const f32,
        c: *const *mut f32, ldc: i32, batch: i32,
    ) {
        cublas!(cublasSgemmBatched(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, batch,
        ))
    }

    fn rocblas_hgemm_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const rocblas_half, a: *const *const rocblas_half, lda: i32, b: *const *const rocblas_half, ldb: i32,
        beta: *const rocblas_half, c: *const *mut rocblas_half, ldc: i32, batch: i32,
    ) {
        cublas!(cublasGemmBatchedEx(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, k, alpha.cast(), a.cast(), HALF, lda, b.cast(),
            HALF, ldb, beta.cast(), c.cast(), HALF, ldc, batch, COMPUTE_HALF, ALGORITHM,
        ))
    }

    fn rocblas_sgemm_strided_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const f32, a: *const f32, lda: i32, stride_a: rocblas_stride, b: *const f32, ldb: i32,
        stride_b: rocblas_stride, beta: *const f32, c: *mut f32, ldc: i32, stride_c: rocblas_stride, batch: i32,
    ) {
        cublas!(cublasSgemmStridedBatched(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta,
            c, ldc, stride_c, batch,
        ))
    }

    fn rocblas_hgemm_strided_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const rocblas_half, a: *const rocblas_half, lda: i32, stride_a: rocblas_stride,
        b: *const rocblas_half, ldb: i32, stride_b: rocblas_stride, beta: *const rocblas_half, c: *mut rocblas_half,
        ldc: i32, stride_c: rocblas_stride, batch: i32,
    ) {
        cublas!(cublasGemmStridedBatchedEx(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, k, alpha.cast(), a.cast(), HALF, lda, stride_a,
            b.cast(), HALF, ldb, stride_b, beta.cast(), c.cast(), HALF, ldc, stride_c, batch, COMPUTE_HALF, ALGORITHM,
        ))
    }

    fn rocblas_sgeam(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, alpha: *const f32,
        a: *const f32, lda: i32, beta: *const f32, b: *const f32, ldb: i32, c: *mut f32, ldc: i32,
    ) {
        cublas!(cublasSgeam(
            handle(of)?, operation(op_a)?, operation(op_b)?, m, n, alpha, a, lda, beta, b, ldb, c, ldc,
        ))
    }
}
