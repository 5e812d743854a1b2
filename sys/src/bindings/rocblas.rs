// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

pub const ROCBLAS_VERSION_MAJOR: u32 = 5;
pub const ROCBLAS_VERSION_MINOR: u32 = 2;
pub const ROCBLAS_VERSION_PATCH: u32 = 0;
#[repr(C)]
#[derive(Debug)]
pub struct _rocblas_handle {
    _unused: [u8; 0],
}
pub type rocblas_handle = *mut _rocblas_handle;
pub type rocblas_int = i32;
pub type rocblas_stride = i64;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct rocblas_half {
    pub data: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of rocblas_half"][::core::mem::size_of::<rocblas_half>() - 2usize];
    ["Alignment of rocblas_half"][::core::mem::align_of::<rocblas_half>() - 2usize];
    [
        "Offset of field: rocblas_half::data",
    ][::core::mem::offset_of!(rocblas_half, data) - 0usize];
};
impl rocblas_operation_ {
    pub const rocblas_operation_none: rocblas_operation_ = rocblas_operation_(111);
    pub const rocblas_operation_transpose: rocblas_operation_ = rocblas_operation_(112);
    pub const rocblas_operation_conjugate_transpose: rocblas_operation_ = rocblas_operation_(
        113,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_operation_(pub ::core::ffi::c_uint);
pub use self::rocblas_operation_ as rocblas_operation;
impl rocblas_datatype_ {
    pub const rocblas_datatype_f16_r: rocblas_datatype_ = rocblas_datatype_(150);
    pub const rocblas_datatype_f32_r: rocblas_datatype_ = rocblas_datatype_(151);
    pub const rocblas_datatype_f64_r: rocblas_datatype_ = rocblas_datatype_(152);
    pub const rocblas_datatype_f16_c: rocblas_datatype_ = rocblas_datatype_(153);
    pub const rocblas_datatype_f32_c: rocblas_datatype_ = rocblas_datatype_(154);
    pub const rocblas_datatype_f64_c: rocblas_datatype_ = rocblas_datatype_(155);
    pub const rocblas_datatype_i8_r: rocblas_datatype_ = rocblas_datatype_(160);
    pub const rocblas_datatype_u8_r: rocblas_datatype_ = rocblas_datatype_(161);
    pub const rocblas_datatype_i32_r: rocblas_datatype_ = rocblas_datatype_(162);
    pub const rocblas_datatype_u32_r: rocblas_datatype_ = rocblas_datatype_(163);
    pub const rocblas_datatype_i8_c: rocblas_datatype_ = rocblas_datatype_(164);
    pub const rocblas_datatype_u8_c: rocblas_datatype_ = rocblas_datatype_(165);
    pub const rocblas_datatype_i32_c: rocblas_datatype_ = rocblas_datatype_(166);
    pub const rocblas_datatype_u32_c: rocblas_datatype_ = rocblas_datatype_(167);
    pub const rocblas_datatype_bf16_r: rocblas_datatype_ = rocblas_datatype_(168);
    pub const rocblas_datatype_bf16_c: rocblas_datatype_ = rocblas_datatype_(169);
    pub const rocblas_datatype_invalid: rocblas_datatype_ = rocblas_datatype_(255);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_datatype_(pub ::core::ffi::c_uint);
pub use self::rocblas_datatype_ as rocblas_datatype;
impl rocblas_status_ {
    pub const rocblas_status_success: rocblas_status_ = rocblas_status_(0);
    pub const rocblas_status_invalid_handle: rocblas_status_ = rocblas_status_(1);
    pub const rocblas_status_not_implemented: rocblas_status_ = rocblas_status_(2);
    pub const rocblas_status_invalid_pointer: rocblas_status_ = rocblas_status_(3);
    pub const rocblas_status_invalid_size: rocblas_status_ = rocblas_status_(4);
    pub const rocblas_status_memory_error: rocblas_status_ = rocblas_status_(5);
    pub const rocblas_status_internal_error: rocblas_status_ = rocblas_status_(6);
    pub const rocblas_status_perf_degraded: rocblas_status_ = rocblas_status_(7);
    pub const rocblas_status_size_query_mismatch: rocblas_status_ = rocblas_status_(8);
    pub const rocblas_status_size_increased: rocblas_status_ = rocblas_status_(9);
    pub const rocblas_status_size_unchanged: rocblas_status_ = rocblas_status_(10);
    pub const rocblas_status_invalid_value: rocblas_status_ = rocblas_status_(11);
    pub const rocblas_status_continue: rocblas_status_ = rocblas_status_(12);
    pub const rocblas_status_check_numerics_fail: rocblas_status_ = rocblas_status_(13);
    pub const rocblas_status_excluded_from_build: rocblas_status_ = rocblas_status_(14);
    pub const rocblas_status_arch_mismatch: rocblas_status_ = rocblas_status_(15);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_status_(pub ::core::ffi::c_uint);
pub use self::rocblas_status_ as rocblas_status;
impl rocblas_pointer_mode_ {
    pub const rocblas_pointer_mode_host: rocblas_pointer_mode_ = rocblas_pointer_mode_(
        0,
    );
    pub const rocblas_pointer_mode_device: rocblas_pointer_mode_ = rocblas_pointer_mode_(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_pointer_mode_(pub ::core::ffi::c_uint);
pub use self::rocblas_pointer_mode_ as rocblas_pointer_mode;
impl rocblas_atomics_mode_ {
    pub const rocblas_atomics_not_allowed: rocblas_atomics_mode_ = rocblas_atomics_mode_(
        0,
    );
    pub const rocblas_atomics_allowed: rocblas_atomics_mode_ = rocblas_atomics_mode_(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_atomics_mode_(pub ::core::ffi::c_uint);
pub use self::rocblas_atomics_mode_ as rocblas_atomics_mode;
impl rocblas_performance_metric_ {
    pub const rocblas_default_performance_metric: rocblas_performance_metric_ = rocblas_performance_metric_(
        0,
    );
    pub const rocblas_device_efficiency_performance_metric: rocblas_performance_metric_ = rocblas_performance_metric_(
        1,
    );
    pub const rocblas_cu_efficiency_performance_metric: rocblas_performance_metric_ = rocblas_performance_metric_(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_performance_metric_(pub ::core::ffi::c_uint);
pub use self::rocblas_performance_metric_ as rocblas_performance_metric;
impl rocblas_gemm_algo_ {
    pub const rocblas_gemm_algo_standard: rocblas_gemm_algo_ = rocblas_gemm_algo_(0);
    pub const rocblas_gemm_algo_solution_index: rocblas_gemm_algo_ = rocblas_gemm_algo_(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_gemm_algo_(pub ::core::ffi::c_uint);
pub use self::rocblas_gemm_algo_ as rocblas_gemm_algo;
impl rocblas_gemm_flags_ {
    pub const rocblas_gemm_flags_none: rocblas_gemm_flags_ = rocblas_gemm_flags_(0);
    pub const rocblas_gemm_flags_use_cu_efficiency: rocblas_gemm_flags_ = rocblas_gemm_flags_(
        2,
    );
    pub const rocblas_gemm_flags_fp16_alt_impl: rocblas_gemm_flags_ = rocblas_gemm_flags_(
        4,
    );
    pub const rocblas_gemm_flags_check_solution_index: rocblas_gemm_flags_ = rocblas_gemm_flags_(
        8,
    );
    pub const rocblas_gemm_flags_fp16_alt_impl_rnz: rocblas_gemm_flags_ = rocblas_gemm_flags_(
        16,
    );
    pub const rocblas_gemm_flags_stochastic_rounding: rocblas_gemm_flags_ = rocblas_gemm_flags_(
        32,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_gemm_flags_(pub ::core::ffi::c_uint);
pub use self::rocblas_gemm_flags_ as rocblas_gemm_flags;
impl rocblas_math_mode_ {
    pub const rocblas_default_math: rocblas_math_mode_ = rocblas_math_mode_(0);
    pub const rocblas_xf32_xdl_math_op: rocblas_math_mode_ = rocblas_math_mode_(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct rocblas_math_mode_(pub ::core::ffi::c_uint);
pub use self::rocblas_math_mode_ as rocblas_math_mode;
crate::table::table! {
    Rocblas;
    pub fn rocblas_create_handle(handle: *mut rocblas_handle) -> rocblas_status;
    pub fn rocblas_destroy_handle(handle: rocblas_handle) -> rocblas_status;
    pub fn rocblas_set_stream(
        handle: rocblas_handle,
        stream: hipStream_t,
    ) -> rocblas_status;
    pub fn rocblas_get_stream(
        handle: rocblas_handle,
        stream: *mut hipStream_t,
    ) -> rocblas_status;
    pub fn rocblas_set_pointer_mode(
        handle: rocblas_handle,
        pointer_mode: rocblas_pointer_mode,
    ) -> rocblas_status;
    pub fn rocblas_get_pointer_mode(
        handle: rocblas_handle,
        pointer_mode: *mut rocblas_pointer_mode,
    ) -> rocblas_status;
    pub fn rocblas_set_atomics_mode(
        handle: rocblas_handle,
        atomics_mode: rocblas_atomics_mode,
    ) -> rocblas_status;
    pub fn rocblas_get_atomics_mode(
        handle: rocblas_handle,
        atomics_mode: *mut rocblas_atomics_mode,
    ) -> rocblas_status;
    pub fn rocblas_set_math_mode(
        handle: rocblas_handle,
        math_mode: rocblas_math_mode,
    ) -> rocblas_status;
    pub fn rocblas_get_math_mode(
        handle: rocblas_handle,
        math_mode: *mut rocblas_math_mode,
    ) -> rocblas_status;
    pub fn rocblas_pointer_to_mode(
        ptr: *mut ::core::ffi::c_void,
    ) -> rocblas_pointer_mode;
    pub fn rocblas_set_vector(
        n: rocblas_int,
        elem_size: rocblas_int,
        x: *const ::core::ffi::c_void,
        incx: rocblas_int,
        y: *mut ::core::ffi::c_void,
        incy: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_get_vector(
        n: rocblas_int,
        elem_size: rocblas_int,
        x: *const ::core::ffi::c_void,
        incx: rocblas_int,
        y: *mut ::core::ffi::c_void,
        incy: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_set_matrix(
        rows: rocblas_int,
        cols: rocblas_int,
        elem_size: rocblas_int,
        a: *const ::core::ffi::c_void,
        lda: rocblas_int,
        b: *mut ::core::ffi::c_void,
        ldb: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_get_matrix(
        rows: rocblas_int,
        cols: rocblas_int,
        elem_size: rocblas_int,
        a: *const ::core::ffi::c_void,
        lda: rocblas_int,
        b: *mut ::core::ffi::c_void,
        ldb: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_set_vector_async(
        n: rocblas_int,
        elem_size: rocblas_int,
        x: *const ::core::ffi::c_void,
        incx: rocblas_int,
        y: *mut ::core::ffi::c_void,
        incy: rocblas_int,
        stream: hipStream_t,
    ) -> rocblas_status;
    pub fn rocblas_get_vector_async(
        n: rocblas_int,
        elem_size: rocblas_int,
        x: *const ::core::ffi::c_void,
        incx: rocblas_int,
        y: *mut ::core::ffi::c_void,
        incy: rocblas_int,
        stream: hipStream_t,
    ) -> rocblas_status;
    pub fn rocblas_set_matrix_async(
        rows: rocblas_int,
        cols: rocblas_int,
        elem_size: rocblas_int,
        a: *const ::core::ffi::c_void,
        lda: rocblas_int,
        b: *mut ::core::ffi::c_void,
        ldb: rocblas_int,
        stream: hipStream_t,
    ) -> rocblas_status;
    pub fn rocblas_get_matrix_async(
        rows: rocblas_int,
        cols: rocblas_int,
        elem_size: rocblas_int,
        a: *const ::core::ffi::c_void,
        lda: rocblas_int,
        b: *mut ::core::ffi::c_void,
        ldb: rocblas_int,
        stream: hipStream_t,
    ) -> rocblas_status;
    pub fn rocblas_set_solution_fitness_query(
        handle: rocblas_handle,
        fitness: *mut f64,
    ) -> rocblas_status;
    pub fn rocblas_set_performance_metric(
        handle: rocblas_handle,
        metric: rocblas_performance_metric,
    ) -> rocblas_status;
    pub fn rocblas_get_performance_metric(
        handle: rocblas_handle,
        metric: *mut rocblas_performance_metric,
    ) -> rocblas_status;
    pub fn rocblas_sscal(
        handle: rocblas_handle,
        n: rocblas_int,
        alpha: *const f32,
        x: *mut f32,
        incx: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_scopy(
        handle: rocblas_handle,
        n: rocblas_int,
        x: *const f32,
        incx: rocblas_int,
        y: *mut f32,
        incy: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sdot(
        handle: rocblas_handle,
        n: rocblas_int,
        x: *const f32,
        incx: rocblas_int,
        y: *const f32,
        incy: rocblas_int,
        result: *mut f32,
    ) -> rocblas_status;
    pub fn rocblas_saxpy(
        handle: rocblas_handle,
        n: rocblas_int,
        alpha: *const f32,
        x: *const f32,
        incx: rocblas_int,
        y: *mut f32,
        incy: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sasum(
        handle: rocblas_handle,
        n: rocblas_int,
        x: *const f32,
        incx: rocblas_int,
        result: *mut f32,
    ) -> rocblas_status;
    pub fn rocblas_snrm2(
        handle: rocblas_handle,
        n: rocblas_int,
        x: *const f32,
        incx: rocblas_int,
        result: *mut f32,
    ) -> rocblas_status;
    pub fn rocblas_isamax(
        handle: rocblas_handle,
        n: rocblas_int,
        x: *const f32,
        incx: rocblas_int,
        result: *mut rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sgemv(
        handle: rocblas_handle,
        trans: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        alpha: *const f32,
        A: *const f32,
        lda: rocblas_int,
        x: *const f32,
        incx: rocblas_int,
        beta: *const f32,
        y: *mut f32,
        incy: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sgemv_batched(
        handle: rocblas_handle,
        trans: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        alpha: *const f32,
        A: *const *const f32,
        lda: rocblas_int,
        x: *const *const f32,
        incx: rocblas_int,
        beta: *const f32,
        y: *const *mut f32,
        incy: rocblas_int,
        batch_count: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sgemv_strided_batched(
        handle: rocblas_handle,
        transA: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        alpha: *const f32,
        A: *const f32,
        lda: rocblas_int,
        strideA: rocblas_stride,
        x: *const f32,
        incx: rocblas_int,
        stridex: rocblas_stride,
        beta: *const f32,
        y: *mut f32,
        incy: rocblas_int,
        stridey: rocblas_stride,
        batch_count: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sgemm(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const f32,
        A: *const f32,
        lda: rocblas_int,
        B: *const f32,
        ldb: rocblas_int,
        beta: *const f32,
        C: *mut f32,
        ldc: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_hgemm(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const rocblas_half,
        A: *const rocblas_half,
        lda: rocblas_int,
        B: *const rocblas_half,
        ldb: rocblas_int,
        beta: *const rocblas_half,
        C: *mut rocblas_half,
        ldc: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sgemm_batched(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const f32,
        A: *const *const f32,
        lda: rocblas_int,
        B: *const *const f32,
        ldb: rocblas_int,
        beta: *const f32,
        C: *const *mut f32,
        ldc: rocblas_int,
        batch_count: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_hgemm_batched(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const rocblas_half,
        A: *const *const rocblas_half,
        lda: rocblas_int,
        B: *const *const rocblas_half,
        ldb: rocblas_int,
        beta: *const rocblas_half,
        C: *const *mut rocblas_half,
        ldc: rocblas_int,
        batch_count: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sgemm_strided_batched(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const f32,
        A: *const f32,
        lda: rocblas_int,
        stride_a: rocblas_stride,
        B: *const f32,
        ldb: rocblas_int,
        stride_b: rocblas_stride,
        beta: *const f32,
        C: *mut f32,
        ldc: rocblas_int,
        stride_c: rocblas_stride,
        batch_count: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_hgemm_strided_batched(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const rocblas_half,
        A: *const rocblas_half,
        lda: rocblas_int,
        stride_a: rocblas_stride,
        B: *const rocblas_half,
        ldb: rocblas_int,
        stride_b: rocblas_stride,
        beta: *const rocblas_half,
        C: *mut rocblas_half,
        ldc: rocblas_int,
        stride_c: rocblas_stride,
        batch_count: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_sgeam(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        alpha: *const f32,
        A: *const f32,
        lda: rocblas_int,
        beta: *const f32,
        B: *const f32,
        ldb: rocblas_int,
        C: *mut f32,
        ldc: rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_gemm_ex(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        a: *const ::core::ffi::c_void,
        a_type: rocblas_datatype,
        lda: rocblas_int,
        b: *const ::core::ffi::c_void,
        b_type: rocblas_datatype,
        ldb: rocblas_int,
        beta: *const ::core::ffi::c_void,
        c: *const ::core::ffi::c_void,
        c_type: rocblas_datatype,
        ldc: rocblas_int,
        d: *mut ::core::ffi::c_void,
        d_type: rocblas_datatype,
        ldd: rocblas_int,
        compute_type: rocblas_datatype,
        algo: rocblas_gemm_algo,
        solution_index: i32,
        flags: u32,
    ) -> rocblas_status;
    pub fn rocblas_gemm_batched_ex(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        a: *const ::core::ffi::c_void,
        a_type: rocblas_datatype,
        lda: rocblas_int,
        b: *const ::core::ffi::c_void,
        b_type: rocblas_datatype,
        ldb: rocblas_int,
        beta: *const ::core::ffi::c_void,
        c: *const ::core::ffi::c_void,
        c_type: rocblas_datatype,
        ldc: rocblas_int,
        d: *mut ::core::ffi::c_void,
        d_type: rocblas_datatype,
        ldd: rocblas_int,
        batch_count: rocblas_int,
        compute_type: rocblas_datatype,
        algo: rocblas_gemm_algo,
        solution_index: i32,
        flags: u32,
    ) -> rocblas_status;
    pub fn rocblas_gemm_strided_batched_ex(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        a: *const ::core::ffi::c_void,
        a_type: rocblas_datatype,
        lda: rocblas_int,
        stride_a: rocblas_stride,
        b: *const ::core::ffi::c_void,
        b_type: rocblas_datatype,
        ldb: rocblas_int,
        stride_b: rocblas_stride,
        beta: *const ::core::ffi::c_void,
        c: *const ::core::ffi::c_void,
        c_type: rocblas_datatype,
        ldc: rocblas_int,
        stride_c: rocblas_stride,
        d: *mut ::core::ffi::c_void,
        d_type: rocblas_datatype,
        ldd: rocblas_int,
        stride_d: rocblas_stride,
        batch_count: rocblas_int,
        compute_type: rocblas_datatype,
        algo: rocblas_gemm_algo,
        solution_index: i32,
        flags: u32,
    ) -> rocblas_status;
    pub fn rocblas_axpy_ex(
        handle: rocblas_handle,
        n: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        alpha_type: rocblas_datatype,
        x: *const ::core::ffi::c_void,
        x_type: rocblas_datatype,
        incx: rocblas_int,
        y: *mut ::core::ffi::c_void,
        y_type: rocblas_datatype,
        incy: rocblas_int,
        execution_type: rocblas_datatype,
    ) -> rocblas_status;
    pub fn rocblas_dot_ex(
        handle: rocblas_handle,
        n: rocblas_int,
        x: *const ::core::ffi::c_void,
        x_type: rocblas_datatype,
        incx: rocblas_int,
        y: *const ::core::ffi::c_void,
        y_type: rocblas_datatype,
        incy: rocblas_int,
        result: *mut ::core::ffi::c_void,
        result_type: rocblas_datatype,
        execution_type: rocblas_datatype,
    ) -> rocblas_status;
    pub fn rocblas_nrm2_ex(
        handle: rocblas_handle,
        n: rocblas_int,
        x: *const ::core::ffi::c_void,
        x_type: rocblas_datatype,
        incx: rocblas_int,
        results: *mut ::core::ffi::c_void,
        result_type: rocblas_datatype,
        execution_type: rocblas_datatype,
    ) -> rocblas_status;
    pub fn rocblas_scal_ex(
        handle: rocblas_handle,
        n: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        alpha_type: rocblas_datatype,
        x: *mut ::core::ffi::c_void,
        x_type: rocblas_datatype,
        incx: rocblas_int,
        execution_type: rocblas_datatype,
    ) -> rocblas_status;
    pub fn rocblas_status_to_string(
        status: rocblas_status,
    ) -> *const ::core::ffi::c_char;
    pub fn rocblas_initialize();
    pub fn rocblas_get_version_string(
        buf: *mut ::core::ffi::c_char,
        len: usize,
    ) -> rocblas_status;
    pub fn rocblas_get_version_string_size(len: *mut usize) -> rocblas_status;
    pub fn rocblas_start_device_memory_size_query(
        handle: rocblas_handle,
    ) -> rocblas_status;
    pub fn rocblas_stop_device_memory_size_query(
        handle: rocblas_handle,
        size: *mut usize,
    ) -> rocblas_status;
    pub fn rocblas_is_device_memory_size_query(handle: rocblas_handle) -> bool;
    pub fn rocblas_get_device_memory_size(
        handle: rocblas_handle,
        size: *mut usize,
    ) -> rocblas_status;
    pub fn rocblas_set_device_memory_size(
        handle: rocblas_handle,
        size: usize,
    ) -> rocblas_status;
    pub fn rocblas_set_workspace(
        handle: rocblas_handle,
        addr: *mut ::core::ffi::c_void,
        size: usize,
    ) -> rocblas_status;
    pub fn rocblas_is_managing_device_memory(handle: rocblas_handle) -> bool;
    pub fn rocblas_is_user_managing_device_memory(handle: rocblas_handle) -> bool;
    pub fn rocblas_gemm_ex_get_solutions(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        a: *const ::core::ffi::c_void,
        a_type: rocblas_datatype,
        lda: rocblas_int,
        b: *const ::core::ffi::c_void,
        b_type: rocblas_datatype,
        ldb: rocblas_int,
        beta: *const ::core::ffi::c_void,
        c: *const ::core::ffi::c_void,
        c_type: rocblas_datatype,
        ldc: rocblas_int,
        d: *mut ::core::ffi::c_void,
        d_type: rocblas_datatype,
        ldd: rocblas_int,
        compute_type: rocblas_datatype,
        algo: rocblas_gemm_algo,
        flags: u32,
        list_array: *mut rocblas_int,
        list_size: *mut rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_gemm_ex_get_solutions_by_type(
        handle: rocblas_handle,
        input_type: rocblas_datatype,
        output_type: rocblas_datatype,
        compute_type: rocblas_datatype,
        flags: u32,
        list_array: *mut rocblas_int,
        list_size: *mut rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_gemm_batched_ex_get_solutions(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        a: *const ::core::ffi::c_void,
        a_type: rocblas_datatype,
        lda: rocblas_int,
        b: *const ::core::ffi::c_void,
        b_type: rocblas_datatype,
        ldb: rocblas_int,
        beta: *const ::core::ffi::c_void,
        c: *const ::core::ffi::c_void,
        c_type: rocblas_datatype,
        ldc: rocblas_int,
        d: *mut ::core::ffi::c_void,
        d_type: rocblas_datatype,
        ldd: rocblas_int,
        batch_count: rocblas_int,
        compute_type: rocblas_datatype,
        algo: rocblas_gemm_algo,
        flags: u32,
        list_array: *mut rocblas_int,
        list_size: *mut rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_gemm_batched_ex_get_solutions_by_type(
        handle: rocblas_handle,
        input_type: rocblas_datatype,
        output_type: rocblas_datatype,
        compute_type: rocblas_datatype,
        flags: u32,
        list_array: *mut rocblas_int,
        list_size: *mut rocblas_int,
    ) -> rocblas_status;
    pub fn rocblas_gemm_strided_batched_ex_get_solutions(
        handle: rocblas_handle,
        transA: rocblas_operation,
        transB: rocblas_operation,
        m: rocblas_int,
        n: rocblas_int,
        k: rocblas_int,
        alpha: *const ::core::ffi::c_void,
        a: *const ::core::ffi::c_void,
        a_type: rocblas_datatype,
        lda: rocblas_int,
        stride_a: rocblas_stride,
        b: *const ::core::ffi::c_void,
        b_type: rocblas_datatype,
        ldb: rocblas_int,
        stride_b: rocblas_stride,
        beta: *const ::core::ffi::c_void,
        c: *const ::core::ffi::c_void,
        c_type: rocblas_datatype,
        ldc: rocblas_int,
        stride_c: rocblas_stride,
        d: *mut ::core::ffi::c_void,
        d_type: rocblas_datatype,
        ldd: rocblas_int,
        stride_d: rocblas_stride,
        batch_count: rocblas_int,
        compute_type: rocblas_datatype,
        algo: rocblas_gemm_algo,
        flags: u32,
        list_array: *mut rocblas_int,
        list_size: *mut rocblas_int,
    ) -> rocblas_status;
}
crate::status::status! {
    rocblas_status_, success: rocblas_status_success;
    rocblas_status_success,
    rocblas_status_invalid_handle,
    rocblas_status_not_implemented,
    rocblas_status_invalid_pointer,
    rocblas_status_invalid_size,
    rocblas_status_memory_error,
    rocblas_status_internal_error,
    rocblas_status_perf_degraded,
    rocblas_status_size_query_mismatch,
    rocblas_status_size_increased,
    rocblas_status_size_unchanged,
    rocblas_status_invalid_value,
    rocblas_status_continue,
    rocblas_status_check_numerics_fail,
    rocblas_status_excluded_from_build,
    rocblas_status_arch_mismatch,
}
