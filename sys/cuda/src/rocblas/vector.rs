//! Vector operations (BLAS 1), GEMV, and copies between host and device.

use std::ffi::c_void;

use hip_provider::export;
use hipvit_sys::hip::hipStream_t;
use hipvit_sys::rocblas::{
    rocblas_datatype, rocblas_handle, rocblas_operation, rocblas_status, rocblas_stride,
};

use super::{cublas, datatype, handle, on_device, operation};

export! { rocblas, rocblas_status, on_device;
    fn rocblas_set_vector(n: i32, size: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32) {
        cublas!(cublasSetVector(n, size, x, incx, y, incy))
    }

    fn rocblas_get_vector(n: i32, size: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32) {
        cublas!(cublasGetVector(n, size, x, incx, y, incy))
    }

    fn rocblas_set_matrix(rows: i32, columns: i32, size: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32) {
        cublas!(cublasSetMatrix(rows, columns, size, a, lda, b, ldb))
    }

    fn rocblas_get_matrix(rows: i32, columns: i32, size: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32) {
        cublas!(cublasGetMatrix(rows, columns, size, a, lda, b, ldb))
    }

    fn rocblas_set_vector_async(
        n: i32, size: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32, stream: hipStream_t,
    ) {
        cublas!(cublasSetVectorAsync(n, size, x, incx, y, incy, stream.cast()))
    }

    fn rocblas_get_vector_async(
        n: i32, size: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32, stream: hipStream_t,
    ) {
        cublas!(cublasGetVectorAsync(n, size, x, incx, y, incy, stream.cast()))
    }

    fn rocblas_set_matrix_async(
        rows: i32, columns: i32, size: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32, stream: hipStream_t,
    ) {
        cublas!(cublasSetMatrixAsync(rows, columns, size, a, lda, b, ldb, stream.cast()))
    }

    fn rocblas_get_matrix_async(
        rows: i32, columns: i32, size: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32, stream: hipStream_t,
    ) {
        cublas!(cublasGetMatrixAsync(rows, columns, size, a, lda, b, ldb, stream.cast()))
    }

    fn rocblas_sscal(of: rocblas_handle, n: i32, alpha: *const f32, x: *mut f32, incx: i32) {
        cublas!(cublasSscal_v2(handle(of)?, n, alpha, x, incx))
    }

    fn rocblas_scopy(of: rocblas_handle, n: i32, x: *const f32, incx: i32, y: *mut f32, incy: i32) {
        cublas!(cublasScopy_v2(handle(of)?, n, x, incx, y, incy))
    }

    fn rocblas_sdot(
        of: rocblas_handle, n: i32, x: *const f32, incx: i32, y: *const f32, incy: i32, result: *mut f32,
    ) {
        cublas!(cublasSdot_v2(handle(of)?, n, x, incx, y, incy, result))
    }

    fn rocblas_saxpy(
        of: rocblas_handle, n: i32, alpha: *const f32, x: *const f32, incx: i32, y: *mut f32, incy: i32,
    ) {
        cublas!(cublasSaxpy_v2(handle(of)?, n, alpha, x, incx, y, incy))
    }

    fn rocblas_sasum(of: rocblas_handle, n: i32, x: *const f32, incx: i32, result: *mut f32) {
        cublas!(cublasSasum_v2(handle(of)?, n, x, incx, result))
    }

    fn rocblas_snrm2(of: rocblas_handle, n: i32, x: *const f32, incx: i32, result: *mut f32) {
        cublas!(cublasSnrm2_v2(handle(of)?, n, x, incx, result))
    }

    fn rocblas_isamax(of: rocblas_handle, n: i32, x: *const f32, incx: i32, result: *mut i32) {
        cublas!(cublasIsamax_v2(handle(of)?, n, x, incx, result))
    }

    fn rocblas_sgemv(
        of: rocblas_handle, op: rocblas_operation, m: i32, n: i32, alpha: *const f32, a: *const f32, lda: i32,
        x: *const f32, incx: i32, beta: *const f32, y: *mut f32, incy: i32,
    ) {
        cublas!(cublasSgemv_v2(handle(of)?, operation(op)?, m, n, alpha, a, lda, x, incx, beta, y, incy))
    }

    fn rocblas_sgemv_batched(
        of: rocblas_handle, op: rocblas_operation, m: i32, n: i32, alpha: *const f32, a: *const *const f32, lda: i32,
        x: *const *const f32, incx: i32, beta: *const f32, y: *const *mut f32, incy: i32, batch: i32,
    ) {
        cublas!(cublasSgemvBatched(
            handle(of)?, operation(op)?, m, n, alpha, a, lda, x, incx, beta, y, incy, batch,
        ))
    }

    fn rocblas_sgemv_strided_batched(
        of: rocblas_handle, op: rocblas_operation, m: i32, n: i32, alpha: *const f32, a: *const f32, lda: i32,
        stride_a: rocblas_stride, x: *const f32, incx: i32, stride_x: rocblas_stride, beta: *const f32, y: *mut f32,
        incy: i32, stride_y: rocblas_stride, batch: i32,
    ) {
        cublas!(cublasSgemvStridedBatched(
            handle(of)?, operation(op)?, m, n, alpha, a, lda, stride_a, x, incx, stride_x, beta, y, incy, stride_y,
            batch,
        ))
    }

    fn rocblas_axpy_ex(
        of: rocblas_handle, n: i32, alpha: *const c_void, alpha_type: rocblas_datatype, x: *const c_void,
        x_type: rocblas_datatype, incx: i32, y: *mut c_void, y_type: rocblas_datatype, incy: i32,
        execution: rocblas_datatype,
    ) {
        cublas!(cublasAxpyEx(
            handle(of)?, n, alpha, datatype(alpha_type)?.0, x, datatype(x_type)?.0, incx, y, datatype(y_type)?.0,
            incy, datatype(execution)?.0,
        ))
    }

    fn rocblas_dot_ex(
        of: rocblas_handle, n: i32, x: *const c_void, x_type: rocblas_datatype, incx: i32, y: *const c_void,
        y_type: rocblas_datatype, incy: i32, result: *mut c_void, result_type: rocblas_datatype,
        execution: rocblas_datatype,
    ) {
        cublas!(cublasDotEx(
            handle(of)?, n, x, datatype(x_type)?.0, incx, y, datatype(y_type)?.0, incy, result,
            datatype(result_type)?.0, datatype(execution)?.0,
        ))
    }

    fn rocblas_nrm2_ex(
        of: rocblas_handle, n: i32, x: *const c_void, x_type: rocblas_datatype, incx: i32, result: *mut c_void,
        result_type: rocblas_datatype, execution: rocblas_datatype,
    ) {
        cublas!(cublasNrm2Ex(
            handle(of)?, n, x, datatype(x_type)?.0, incx, result, datatype(result_type)?.0, datatype(execution)?.0,
        ))
    }

    fn rocblas_scal_ex(
        of: rocblas_handle, n: i32, alpha: *const c_void, alpha_type: rocblas_datatype, x: *mut c_void,
        x_type: rocblas_datatype, incx: i32, execution: rocblas_datatype,
    ) {
        cublas!(cublasScalEx(
            handle(of)?, n, alpha, datatype(alpha_type)?.0, x, datatype(x_type)?.0, incx, datatype(execution)?.0,
        ))
    }
}
