// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

pub const hipsparseltVersionMajor: u32 = 0;
pub const hipsparseltVersionMinor: u32 = 2;
pub const hipsparseltVersionPatch: u32 = 6;
impl hipsparseStatus_t {
    pub const HIPSPARSE_STATUS_SUCCESS: hipsparseStatus_t = hipsparseStatus_t(0);
    pub const HIPSPARSE_STATUS_NOT_INITIALIZED: hipsparseStatus_t = hipsparseStatus_t(1);
    pub const HIPSPARSE_STATUS_ALLOC_FAILED: hipsparseStatus_t = hipsparseStatus_t(2);
    pub const HIPSPARSE_STATUS_INVALID_VALUE: hipsparseStatus_t = hipsparseStatus_t(3);
    pub const HIPSPARSE_STATUS_ARCH_MISMATCH: hipsparseStatus_t = hipsparseStatus_t(4);
    pub const HIPSPARSE_STATUS_MAPPING_ERROR: hipsparseStatus_t = hipsparseStatus_t(5);
    pub const HIPSPARSE_STATUS_EXECUTION_FAILED: hipsparseStatus_t = hipsparseStatus_t(
        6,
    );
    pub const HIPSPARSE_STATUS_INTERNAL_ERROR: hipsparseStatus_t = hipsparseStatus_t(7);
    pub const HIPSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED: hipsparseStatus_t = hipsparseStatus_t(
        8,
    );
    pub const HIPSPARSE_STATUS_ZERO_PIVOT: hipsparseStatus_t = hipsparseStatus_t(9);
    pub const HIPSPARSE_STATUS_NOT_SUPPORTED: hipsparseStatus_t = hipsparseStatus_t(10);
    pub const HIPSPARSE_STATUS_INSUFFICIENT_RESOURCES: hipsparseStatus_t = hipsparseStatus_t(
        11,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseStatus_t(pub ::core::ffi::c_uint);
impl hipsparseOperation_t {
    pub const HIPSPARSE_OPERATION_NON_TRANSPOSE: hipsparseOperation_t = hipsparseOperation_t(
        0,
    );
    pub const HIPSPARSE_OPERATION_TRANSPOSE: hipsparseOperation_t = hipsparseOperation_t(
        1,
    );
    pub const HIPSPARSE_OPERATION_CONJUGATE_TRANSPOSE: hipsparseOperation_t = hipsparseOperation_t(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseOperation_t(pub ::core::ffi::c_uint);
impl hipsparseOrder_t {
    pub const HIPSPARSE_ORDER_COLUMN: hipsparseOrder_t = hipsparseOrder_t(1);
    pub const HIPSPARSE_ORDER_COL: hipsparseOrder_t = hipsparseOrder_t(1);
    pub const HIPSPARSE_ORDER_ROW: hipsparseOrder_t = hipsparseOrder_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseOrder_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipsparseLtHandle_t {
    pub data: [u8; 11024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipsparseLtHandle_t",
    ][::core::mem::size_of::<hipsparseLtHandle_t>() - 11024usize];
    [
        "Alignment of hipsparseLtHandle_t",
    ][::core::mem::align_of::<hipsparseLtHandle_t>() - 1usize];
    [
        "Offset of field: hipsparseLtHandle_t::data",
    ][::core::mem::offset_of!(hipsparseLtHandle_t, data) - 0usize];
};
impl Default for hipsparseLtHandle_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipsparseLtMatDescriptor_t {
    pub data: [u8; 11024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipsparseLtMatDescriptor_t",
    ][::core::mem::size_of::<hipsparseLtMatDescriptor_t>() - 11024usize];
    [
        "Alignment of hipsparseLtMatDescriptor_t",
    ][::core::mem::align_of::<hipsparseLtMatDescriptor_t>() - 1usize];
    [
        "Offset of field: hipsparseLtMatDescriptor_t::data",
    ][::core::mem::offset_of!(hipsparseLtMatDescriptor_t, data) - 0usize];
};
impl Default for hipsparseLtMatDescriptor_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipsparseLtMatmulDescriptor_t {
    pub data: [u8; 11024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipsparseLtMatmulDescriptor_t",
    ][::core::mem::size_of::<hipsparseLtMatmulDescriptor_t>() - 11024usize];
    [
        "Alignment of hipsparseLtMatmulDescriptor_t",
    ][::core::mem::align_of::<hipsparseLtMatmulDescriptor_t>() - 1usize];
    [
        "Offset of field: hipsparseLtMatmulDescriptor_t::data",
    ][::core::mem::offset_of!(hipsparseLtMatmulDescriptor_t, data) - 0usize];
};
impl Default for hipsparseLtMatmulDescriptor_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipsparseLtMatmulAlgSelection_t {
    pub data: [u8; 11024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipsparseLtMatmulAlgSelection_t",
    ][::core::mem::size_of::<hipsparseLtMatmulAlgSelection_t>() - 11024usize];
    [
        "Alignment of hipsparseLtMatmulAlgSelection_t",
    ][::core::mem::align_of::<hipsparseLtMatmulAlgSelection_t>() - 1usize];
    [
        "Offset of field: hipsparseLtMatmulAlgSelection_t::data",
    ][::core::mem::offset_of!(hipsparseLtMatmulAlgSelection_t, data) - 0usize];
};
impl Default for hipsparseLtMatmulAlgSelection_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipsparseLtMatmulPlan_t {
    pub data: [u8; 11024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipsparseLtMatmulPlan_t",
    ][::core::mem::size_of::<hipsparseLtMatmulPlan_t>() - 11024usize];
    [
        "Alignment of hipsparseLtMatmulPlan_t",
    ][::core::mem::align_of::<hipsparseLtMatmulPlan_t>() - 1usize];
    [
        "Offset of field: hipsparseLtMatmulPlan_t::data",
    ][::core::mem::offset_of!(hipsparseLtMatmulPlan_t, data) - 0usize];
};
impl Default for hipsparseLtMatmulPlan_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl hipsparseLtSparsity_t {
    pub const HIPSPARSELT_SPARSITY_50_PERCENT: hipsparseLtSparsity_t = hipsparseLtSparsity_t(
        0,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseLtSparsity_t(pub ::core::ffi::c_uint);
impl hipsparseLtMatDescAttribute_t {
    pub const HIPSPARSELT_MAT_NUM_BATCHES: hipsparseLtMatDescAttribute_t = hipsparseLtMatDescAttribute_t(
        0,
    );
    pub const HIPSPARSELT_MAT_BATCH_STRIDE: hipsparseLtMatDescAttribute_t = hipsparseLtMatDescAttribute_t(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseLtMatDescAttribute_t(pub ::core::ffi::c_uint);
impl hipsparseLtComputetype_t {
    pub const HIPSPARSELT_COMPUTE_16F: hipsparseLtComputetype_t = hipsparseLtComputetype_t(
        0,
    );
    pub const HIPSPARSELT_COMPUTE_32I: hipsparseLtComputetype_t = hipsparseLtComputetype_t(
        1,
    );
    pub const HIPSPARSELT_COMPUTE_32F: hipsparseLtComputetype_t = hipsparseLtComputetype_t(
        2,
    );
    pub const HIPSPARSELT_COMPUTE_TF32: hipsparseLtComputetype_t = hipsparseLtComputetype_t(
        3,
    );
    pub const HIPSPARSELT_COMPUTE_TF32_FAST: hipsparseLtComputetype_t = hipsparseLtComputetype_t(
        4,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseLtComputetype_t(pub ::core::ffi::c_uint);
impl hipsparseLtMatmulDescAttribute_t {
    pub const HIPSPARSELT_MATMUL_ACTIVATION_RELU: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        0,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_RELU_UPPERBOUND: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        1,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_RELU_THRESHOLD: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        2,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_GELU: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        3,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_GELU_SCALING: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        4,
    );
    pub const HIPSPARSELT_MATMUL_ALPHA_VECTOR_SCALING: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        5,
    );
    pub const HIPSPARSELT_MATMUL_BETA_VECTOR_SCALING: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        6,
    );
    pub const HIPSPARSELT_MATMUL_BIAS_STRIDE: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        7,
    );
    pub const HIPSPARSELT_MATMUL_BIAS_POINTER: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        8,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_ABS: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        9,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_LEAKYRELU: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        10,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_LEAKYRELU_ALPHA: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        11,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_SIGMOID: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        12,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_TANH: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        13,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_TANH_ALPHA: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        14,
    );
    pub const HIPSPARSELT_MATMUL_ACTIVATION_TANH_BETA: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        15,
    );
    pub const HIPSPARSELT_MATMUL_BIAS_TYPE: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        16,
    );
    pub const HIPSPARSELT_MATMUL_SPARSE_MAT_POINTER: hipsparseLtMatmulDescAttribute_t = hipsparseLtMatmulDescAttribute_t(
        17,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseLtMatmulDescAttribute_t(pub ::core::ffi::c_uint);
impl hipsparseLtMatmulAlg_t {
    pub const HIPSPARSELT_MATMUL_ALG_DEFAULT: hipsparseLtMatmulAlg_t = hipsparseLtMatmulAlg_t(
        0,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseLtMatmulAlg_t(pub ::core::ffi::c_uint);
impl hipsparseLtMatmulAlgAttribute_t {
    pub const HIPSPARSELT_MATMUL_ALG_CONFIG_ID: hipsparseLtMatmulAlgAttribute_t = hipsparseLtMatmulAlgAttribute_t(
        0,
    );
    pub const HIPSPARSELT_MATMUL_ALG_CONFIG_MAX_ID: hipsparseLtMatmulAlgAttribute_t = hipsparseLtMatmulAlgAttribute_t(
        1,
    );
    pub const HIPSPARSELT_MATMUL_SEARCH_ITERATIONS: hipsparseLtMatmulAlgAttribute_t = hipsparseLtMatmulAlgAttribute_t(
        2,
    );
    pub const HIPSPARSELT_MATMUL_SPLIT_K: hipsparseLtMatmulAlgAttribute_t = hipsparseLtMatmulAlgAttribute_t(
        3,
    );
    pub const HIPSPARSELT_MATMUL_SPLIT_K_MODE: hipsparseLtMatmulAlgAttribute_t = hipsparseLtMatmulAlgAttribute_t(
        4,
    );
    pub const HIPSPARSELT_MATMUL_SPLIT_K_BUFFERS: hipsparseLtMatmulAlgAttribute_t = hipsparseLtMatmulAlgAttribute_t(
        5,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseLtMatmulAlgAttribute_t(pub ::core::ffi::c_uint);
impl hipsparseLtPruneAlg_t {
    pub const HIPSPARSELT_PRUNE_SPMMA_TILE: hipsparseLtPruneAlg_t = hipsparseLtPruneAlg_t(
        0,
    );
    pub const HIPSPARSELT_PRUNE_SPMMA_STRIP: hipsparseLtPruneAlg_t = hipsparseLtPruneAlg_t(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipsparseLtPruneAlg_t(pub ::core::ffi::c_uint);
crate::table::table! {
    Hipsparselt;
    pub fn hipsparseLtGetVersion(
        handle: *const hipsparseLtHandle_t,
        version: *mut ::core::ffi::c_int,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtInit(handle: *mut hipsparseLtHandle_t) -> hipsparseStatus_t;
    pub fn hipsparseLtDestroy(handle: *const hipsparseLtHandle_t) -> hipsparseStatus_t;
    pub fn hipsparseLtDenseDescriptorInit(
        handle: *const hipsparseLtHandle_t,
        matDescr: *mut hipsparseLtMatDescriptor_t,
        rows: i64,
        cols: i64,
        ld: i64,
        alignment: u32,
        valueType: hipDataType,
        order: hipsparseOrder_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtStructuredDescriptorInit(
        handle: *const hipsparseLtHandle_t,
        matDescr: *mut hipsparseLtMatDescriptor_t,
        rows: i64,
        cols: i64,
        ld: i64,
        alignment: u32,
        valueType: hipDataType,
        order: hipsparseOrder_t,
        sparsity: hipsparseLtSparsity_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatDescriptorDestroy(
        matDescr: *const hipsparseLtMatDescriptor_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatDescSetAttribute(
        handle: *const hipsparseLtHandle_t,
        matDescr: *mut hipsparseLtMatDescriptor_t,
        matAttribute: hipsparseLtMatDescAttribute_t,
        data: *const ::core::ffi::c_void,
        dataSize: usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatDescGetAttribute(
        handle: *const hipsparseLtHandle_t,
        matDescr: *const hipsparseLtMatDescriptor_t,
        matAttribute: hipsparseLtMatDescAttribute_t,
        data: *mut ::core::ffi::c_void,
        dataSize: usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulDescriptorInit(
        handle: *const hipsparseLtHandle_t,
        matmulDescr: *mut hipsparseLtMatmulDescriptor_t,
        opA: hipsparseOperation_t,
        opB: hipsparseOperation_t,
        matA: *const hipsparseLtMatDescriptor_t,
        matB: *const hipsparseLtMatDescriptor_t,
        matC: *const hipsparseLtMatDescriptor_t,
        matD: *const hipsparseLtMatDescriptor_t,
        computeType: hipsparseLtComputetype_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulDescSetAttribute(
        handle: *const hipsparseLtHandle_t,
        matmulDescr: *mut hipsparseLtMatmulDescriptor_t,
        matmulAttribute: hipsparseLtMatmulDescAttribute_t,
        data: *const ::core::ffi::c_void,
        dataSize: usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulDescGetAttribute(
        handle: *const hipsparseLtHandle_t,
        matmulDescr: *const hipsparseLtMatmulDescriptor_t,
        matmulAttribute: hipsparseLtMatmulDescAttribute_t,
        data: *mut ::core::ffi::c_void,
        dataSize: usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulAlgSelectionInit(
        handle: *const hipsparseLtHandle_t,
        algSelection: *mut hipsparseLtMatmulAlgSelection_t,
        matmulDescr: *const hipsparseLtMatmulDescriptor_t,
        alg: hipsparseLtMatmulAlg_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulAlgSetAttribute(
        handle: *const hipsparseLtHandle_t,
        algSelection: *mut hipsparseLtMatmulAlgSelection_t,
        attribute: hipsparseLtMatmulAlgAttribute_t,
        data: *const ::core::ffi::c_void,
        dataSize: usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulAlgGetAttribute(
        handle: *const hipsparseLtHandle_t,
        algSelection: *const hipsparseLtMatmulAlgSelection_t,
        attribute: hipsparseLtMatmulAlgAttribute_t,
        data: *mut ::core::ffi::c_void,
        dataSize: usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulGetWorkspace(
        handle: *const hipsparseLtHandle_t,
        plan: *const hipsparseLtMatmulPlan_t,
        workspaceSize: *mut usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulPlanInit(
        handle: *const hipsparseLtHandle_t,
        plan: *mut hipsparseLtMatmulPlan_t,
        matmulDescr: *const hipsparseLtMatmulDescriptor_t,
        algSelection: *const hipsparseLtMatmulAlgSelection_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulPlanDestroy(
        plan: *const hipsparseLtMatmulPlan_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmul(
        handle: *const hipsparseLtHandle_t,
        plan: *const hipsparseLtMatmulPlan_t,
        alpha: *const ::core::ffi::c_void,
        d_A: *const ::core::ffi::c_void,
        d_B: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        d_C: *const ::core::ffi::c_void,
        d_D: *mut ::core::ffi::c_void,
        workspace: *mut ::core::ffi::c_void,
        streams: *mut hipStream_t,
        numStreams: i32,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtMatmulSearch(
        handle: *const hipsparseLtHandle_t,
        plan: *mut hipsparseLtMatmulPlan_t,
        alpha: *const ::core::ffi::c_void,
        d_A: *const ::core::ffi::c_void,
        d_B: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        d_C: *const ::core::ffi::c_void,
        d_D: *mut ::core::ffi::c_void,
        workspace: *mut ::core::ffi::c_void,
        streams: *mut hipStream_t,
        numStreams: i32,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMAPrune(
        handle: *const hipsparseLtHandle_t,
        matmulDescr: *const hipsparseLtMatmulDescriptor_t,
        d_in: *const ::core::ffi::c_void,
        d_out: *mut ::core::ffi::c_void,
        pruneAlg: hipsparseLtPruneAlg_t,
        stream: hipStream_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMAPruneCheck(
        handle: *const hipsparseLtHandle_t,
        matmulDescr: *const hipsparseLtMatmulDescriptor_t,
        d_in: *const ::core::ffi::c_void,
        d_valid: *mut ::core::ffi::c_int,
        stream: hipStream_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMAPrune2(
        handle: *const hipsparseLtHandle_t,
        sparseMatDescr: *const hipsparseLtMatDescriptor_t,
        isSparseA: ::core::ffi::c_int,
        op: hipsparseOperation_t,
        d_in: *const ::core::ffi::c_void,
        d_out: *mut ::core::ffi::c_void,
        pruneAlg: hipsparseLtPruneAlg_t,
        stream: hipStream_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMAPruneCheck2(
        handle: *const hipsparseLtHandle_t,
        sparseMatDescr: *const hipsparseLtMatDescriptor_t,
        isSparseA: ::core::ffi::c_int,
        op: hipsparseOperation_t,
        d_in: *const ::core::ffi::c_void,
        d_valid: *mut ::core::ffi::c_int,
        stream: hipStream_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMACompressedSize(
        handle: *const hipsparseLtHandle_t,
        plan: *const hipsparseLtMatmulPlan_t,
        compressedSize: *mut usize,
        compressBufferSize: *mut usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMACompress(
        handle: *const hipsparseLtHandle_t,
        plan: *const hipsparseLtMatmulPlan_t,
        d_dense: *const ::core::ffi::c_void,
        d_compressed: *mut ::core::ffi::c_void,
        d_compressBuffer: *mut ::core::ffi::c_void,
        stream: hipStream_t,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMACompressedSize2(
        handle: *const hipsparseLtHandle_t,
        sparseMatDescr: *const hipsparseLtMatDescriptor_t,
        compressedSize: *mut usize,
        compressBufferSize: *mut usize,
    ) -> hipsparseStatus_t;
    pub fn hipsparseLtSpMMACompress2(
        handle: *const hipsparseLtHandle_t,
        sparseMatDescr: *const hipsparseLtMatDescriptor_t,
        isSparseA: ::core::ffi::c_int,
        op: hipsparseOperation_t,
        d_dense: *const ::core::ffi::c_void,
        d_compressed: *mut ::core::ffi::c_void,
        d_compressBuffer: *mut ::core::ffi::c_void,
        stream: hipStream_t,
    ) -> hipsparseStatus_t;
}
crate::status::status! {
    hipsparseStatus_t, success: HIPSPARSE_STATUS_SUCCESS;
    HIPSPARSE_STATUS_SUCCESS,
    HIPSPARSE_STATUS_NOT_INITIALIZED,
    HIPSPARSE_STATUS_ALLOC_FAILED,
    HIPSPARSE_STATUS_INVALID_VALUE,
    HIPSPARSE_STATUS_ARCH_MISMATCH,
    HIPSPARSE_STATUS_MAPPING_ERROR,
    HIPSPARSE_STATUS_EXECUTION_FAILED,
    HIPSPARSE_STATUS_INTERNAL_ERROR,
    HIPSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED,
    HIPSPARSE_STATUS_ZERO_PIVOT,
    HIPSPARSE_STATUS_NOT_SUPPORTED,
    HIPSPARSE_STATUS_INSUFFICIENT_RESOURCES,
}
