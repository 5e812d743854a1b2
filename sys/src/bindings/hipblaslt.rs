// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

pub const HIPBLASLT_VERSION_MAJOR: u32 = 1;
pub const HIPBLASLT_VERSION_MINOR: u32 = 2;
pub const HIPBLASLT_VERSION_PATCH: u32 = 2;
impl hipblasStatus_t {
    pub const HIPBLAS_STATUS_SUCCESS: hipblasStatus_t = hipblasStatus_t(0);
    pub const HIPBLAS_STATUS_NOT_INITIALIZED: hipblasStatus_t = hipblasStatus_t(1);
    pub const HIPBLAS_STATUS_ALLOC_FAILED: hipblasStatus_t = hipblasStatus_t(2);
    pub const HIPBLAS_STATUS_INVALID_VALUE: hipblasStatus_t = hipblasStatus_t(3);
    pub const HIPBLAS_STATUS_MAPPING_ERROR: hipblasStatus_t = hipblasStatus_t(4);
    pub const HIPBLAS_STATUS_EXECUTION_FAILED: hipblasStatus_t = hipblasStatus_t(5);
    pub const HIPBLAS_STATUS_INTERNAL_ERROR: hipblasStatus_t = hipblasStatus_t(6);
    pub const HIPBLAS_STATUS_NOT_SUPPORTED: hipblasStatus_t = hipblasStatus_t(7);
    pub const HIPBLAS_STATUS_ARCH_MISMATCH: hipblasStatus_t = hipblasStatus_t(8);
    pub const HIPBLAS_STATUS_HANDLE_IS_NULLPTR: hipblasStatus_t = hipblasStatus_t(9);
    pub const HIPBLAS_STATUS_INVALID_ENUM: hipblasStatus_t = hipblasStatus_t(10);
    pub const HIPBLAS_STATUS_UNKNOWN: hipblasStatus_t = hipblasStatus_t(11);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasStatus_t(pub ::core::ffi::c_uint);
impl hipblasOperation_t {
    pub const HIPBLAS_OP_N: hipblasOperation_t = hipblasOperation_t(111);
    pub const HIPBLAS_OP_T: hipblasOperation_t = hipblasOperation_t(112);
    pub const HIPBLAS_OP_C: hipblasOperation_t = hipblasOperation_t(113);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasOperation_t(pub ::core::ffi::c_uint);
impl hipblasComputeType_t {
    pub const HIPBLAS_COMPUTE_16F: hipblasComputeType_t = hipblasComputeType_t(0);
    pub const HIPBLAS_COMPUTE_16F_PEDANTIC: hipblasComputeType_t = hipblasComputeType_t(
        1,
    );
    pub const HIPBLAS_COMPUTE_32F: hipblasComputeType_t = hipblasComputeType_t(2);
    pub const HIPBLAS_COMPUTE_32F_PEDANTIC: hipblasComputeType_t = hipblasComputeType_t(
        3,
    );
    pub const HIPBLAS_COMPUTE_32F_FAST_16F: hipblasComputeType_t = hipblasComputeType_t(
        4,
    );
    pub const HIPBLAS_COMPUTE_32F_FAST_16BF: hipblasComputeType_t = hipblasComputeType_t(
        5,
    );
    pub const HIPBLAS_COMPUTE_32F_FAST_TF32: hipblasComputeType_t = hipblasComputeType_t(
        6,
    );
    pub const HIPBLAS_COMPUTE_64F: hipblasComputeType_t = hipblasComputeType_t(7);
    pub const HIPBLAS_COMPUTE_64F_PEDANTIC: hipblasComputeType_t = hipblasComputeType_t(
        8,
    );
    pub const HIPBLAS_COMPUTE_32I: hipblasComputeType_t = hipblasComputeType_t(9);
    pub const HIPBLAS_COMPUTE_32I_PEDANTIC: hipblasComputeType_t = hipblasComputeType_t(
        10,
    );
    pub const HIPBLAS_COMPUTE_32F_FAST_8F_FNUZ: hipblasComputeType_t = hipblasComputeType_t(
        100,
    );
    pub const HIPBLAS_COMPUTE_32F_FAST_8BF_FNUZ: hipblasComputeType_t = hipblasComputeType_t(
        101,
    );
    pub const HIPBLAS_COMPUTE_32F_FAST_8F8BF_FNUZ: hipblasComputeType_t = hipblasComputeType_t(
        102,
    );
    pub const HIPBLAS_COMPUTE_32F_FAST_8BF8F_FNUZ: hipblasComputeType_t = hipblasComputeType_t(
        103,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasComputeType_t(pub ::core::ffi::c_uint);
impl hipblasLtEpilogue_t {
    pub const HIPBLASLT_EPILOGUE_DEFAULT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(1);
    pub const HIPBLASLT_EPILOGUE_RELU: hipblasLtEpilogue_t = hipblasLtEpilogue_t(2);
    pub const HIPBLASLT_EPILOGUE_BIAS: hipblasLtEpilogue_t = hipblasLtEpilogue_t(4);
    pub const HIPBLASLT_EPILOGUE_RELU_BIAS: hipblasLtEpilogue_t = hipblasLtEpilogue_t(6);
    pub const HIPBLASLT_EPILOGUE_GELU: hipblasLtEpilogue_t = hipblasLtEpilogue_t(32);
    pub const HIPBLASLT_EPILOGUE_GELU_BIAS: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        36,
    );
    pub const HIPBLASLT_EPILOGUE_RELU_AUX: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        130,
    );
    pub const HIPBLASLT_EPILOGUE_RELU_AUX_BIAS: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        134,
    );
    pub const HIPBLASLT_EPILOGUE_GELU_AUX: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        160,
    );
    pub const HIPBLASLT_EPILOGUE_GELU_AUX_BIAS: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        164,
    );
    pub const HIPBLASLT_EPILOGUE_DGELU: hipblasLtEpilogue_t = hipblasLtEpilogue_t(192);
    pub const HIPBLASLT_EPILOGUE_DGELU_BGRAD: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        208,
    );
    pub const HIPBLASLT_EPILOGUE_BGRADA: hipblasLtEpilogue_t = hipblasLtEpilogue_t(256);
    pub const HIPBLASLT_EPILOGUE_BGRADB: hipblasLtEpilogue_t = hipblasLtEpilogue_t(512);
    pub const HIPBLASLT_EPILOGUE_SWISH_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        65536,
    );
    pub const HIPBLASLT_EPILOGUE_SWISH_BIAS_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        65540,
    );
    pub const HIPBLASLT_EPILOGUE_CLAMP_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        131072,
    );
    pub const HIPBLASLT_EPILOGUE_CLAMP_BIAS_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        131076,
    );
    pub const HIPBLASLT_EPILOGUE_CLAMP_AUX_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        131200,
    );
    pub const HIPBLASLT_EPILOGUE_CLAMP_AUX_BIAS_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        131204,
    );
    pub const HIPBLASLT_EPILOGUE_SIGMOID_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        262144,
    );
    pub const HIPBLASLT_EPILOGUE_SIGMOID_BIAS_EXT: hipblasLtEpilogue_t = hipblasLtEpilogue_t(
        262148,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtEpilogue_t(pub ::core::ffi::c_uint);
impl hipblasLtMatrixLayoutAttribute_t {
    pub const HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT: hipblasLtMatrixLayoutAttribute_t = hipblasLtMatrixLayoutAttribute_t(
        0,
    );
    pub const HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: hipblasLtMatrixLayoutAttribute_t = hipblasLtMatrixLayoutAttribute_t(
        1,
    );
    pub const HIPBLASLT_MATRIX_LAYOUT_TYPE: hipblasLtMatrixLayoutAttribute_t = hipblasLtMatrixLayoutAttribute_t(
        2,
    );
    pub const HIPBLASLT_MATRIX_LAYOUT_ORDER: hipblasLtMatrixLayoutAttribute_t = hipblasLtMatrixLayoutAttribute_t(
        3,
    );
    pub const HIPBLASLT_MATRIX_LAYOUT_ROWS: hipblasLtMatrixLayoutAttribute_t = hipblasLtMatrixLayoutAttribute_t(
        4,
    );
    pub const HIPBLASLT_MATRIX_LAYOUT_COLS: hipblasLtMatrixLayoutAttribute_t = hipblasLtMatrixLayoutAttribute_t(
        5,
    );
    pub const HIPBLASLT_MATRIX_LAYOUT_LD: hipblasLtMatrixLayoutAttribute_t = hipblasLtMatrixLayoutAttribute_t(
        6,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtMatrixLayoutAttribute_t(pub ::core::ffi::c_uint);
impl hipblasLtPointerMode_t {
    pub const HIPBLASLT_POINTER_MODE_HOST: hipblasLtPointerMode_t = hipblasLtPointerMode_t(
        0,
    );
    pub const HIPBLASLT_POINTER_MODE_DEVICE: hipblasLtPointerMode_t = hipblasLtPointerMode_t(
        1,
    );
    pub const HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST: hipblasLtPointerMode_t = hipblasLtPointerMode_t(
        4,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtPointerMode_t(pub ::core::ffi::c_uint);
impl hipblasLtMatmulMatrixScale_t {
    pub const HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F: hipblasLtMatmulMatrixScale_t = hipblasLtMatmulMatrixScale_t(
        0,
    );
    pub const HIPBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3: hipblasLtMatmulMatrixScale_t = hipblasLtMatmulMatrixScale_t(
        1,
    );
    pub const HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0: hipblasLtMatmulMatrixScale_t = hipblasLtMatmulMatrixScale_t(
        2,
    );
    pub const HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F: hipblasLtMatmulMatrixScale_t = hipblasLtMatmulMatrixScale_t(
        3,
    );
    pub const HIPBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F: hipblasLtMatmulMatrixScale_t = hipblasLtMatmulMatrixScale_t(
        4,
    );
    pub const HIPBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F: hipblasLtMatmulMatrixScale_t = hipblasLtMatmulMatrixScale_t(
        5,
    );
    pub const HIPBLASLT_MATMUL_MATRIX_SCALE_END: hipblasLtMatmulMatrixScale_t = hipblasLtMatmulMatrixScale_t(
        6,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtMatmulMatrixScale_t(pub ::core::ffi::c_uint);
impl hipblasLtMatmulDescAttributes_t {
    pub const HIPBLASLT_MATMUL_DESC_TRANSA: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        0,
    );
    pub const HIPBLASLT_MATMUL_DESC_TRANSB: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        1,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        2,
    );
    pub const HIPBLASLT_MATMUL_DESC_BIAS_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        3,
    );
    pub const HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        4,
    );
    pub const HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        5,
    );
    pub const HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        6,
    );
    pub const HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        7,
    );
    pub const HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        8,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        9,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        10,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        11,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        12,
    );
    pub const HIPBLASLT_MATMUL_DESC_POINTER_MODE: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        13,
    );
    pub const HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        14,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        22,
    );
    pub const HIPBLASLT_MATMUL_DESC_A_SCALE_MODE: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        31,
    );
    pub const HIPBLASLT_MATMUL_DESC_B_SCALE_MODE: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        32,
    );
    pub const HIPBLASLT_MATMUL_DESC_COMPUTE_INPUT_TYPE_A_EXT: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        100,
    );
    pub const HIPBLASLT_MATMUL_DESC_COMPUTE_INPUT_TYPE_B_EXT: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        101,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        102,
    );
    pub const HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        103,
    );
    pub const HIPBLASLT_MATMUL_DESC_MAX: hipblasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t(
        104,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtMatmulDescAttributes_t(pub ::core::ffi::c_uint);
impl hipblasLtMatmulPreferenceAttributes_t {
    pub const HIPBLASLT_MATMUL_PREF_SEARCH_MODE: hipblasLtMatmulPreferenceAttributes_t = hipblasLtMatmulPreferenceAttributes_t(
        0,
    );
    pub const HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: hipblasLtMatmulPreferenceAttributes_t = hipblasLtMatmulPreferenceAttributes_t(
        1,
    );
    pub const HIPBLASLT_MATMUL_PREF_MAX: hipblasLtMatmulPreferenceAttributes_t = hipblasLtMatmulPreferenceAttributes_t(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtMatmulPreferenceAttributes_t(pub ::core::ffi::c_uint);
impl hipblasLtOrder_t {
    pub const HIPBLASLT_ORDER_COL: hipblasLtOrder_t = hipblasLtOrder_t(0);
    pub const HIPBLASLT_ORDER_ROW: hipblasLtOrder_t = hipblasLtOrder_t(1);
    pub const HIPBLASLT_ORDER_COL16_4R16: hipblasLtOrder_t = hipblasLtOrder_t(100);
    pub const HIPBLASLT_ORDER_COL16_4R8: hipblasLtOrder_t = hipblasLtOrder_t(101);
    pub const HIPBLASLT_ORDER_COL16_4R4: hipblasLtOrder_t = hipblasLtOrder_t(102);
    pub const HIPBLASLT_ORDER_COL16_4R2: hipblasLtOrder_t = hipblasLtOrder_t(103);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtOrder_t(pub ::core::ffi::c_uint);
impl hipblasLtMatrixTransformDescAttributes_t {
    pub const HIPBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE: hipblasLtMatrixTransformDescAttributes_t = hipblasLtMatrixTransformDescAttributes_t(
        0,
    );
    pub const HIPBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE: hipblasLtMatrixTransformDescAttributes_t = hipblasLtMatrixTransformDescAttributes_t(
        1,
    );
    pub const HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSA: hipblasLtMatrixTransformDescAttributes_t = hipblasLtMatrixTransformDescAttributes_t(
        2,
    );
    pub const HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSB: hipblasLtMatrixTransformDescAttributes_t = hipblasLtMatrixTransformDescAttributes_t(
        3,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hipblasLtMatrixTransformDescAttributes_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipblasLtMatmulDescOpaque_t {
    pub data: [u64; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipblasLtMatmulDescOpaque_t",
    ][::core::mem::size_of::<hipblasLtMatmulDescOpaque_t>() - 32usize];
    [
        "Alignment of hipblasLtMatmulDescOpaque_t",
    ][::core::mem::align_of::<hipblasLtMatmulDescOpaque_t>() - 8usize];
    [
        "Offset of field: hipblasLtMatmulDescOpaque_t::data",
    ][::core::mem::offset_of!(hipblasLtMatmulDescOpaque_t, data) - 0usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipblasLtMatrixLayoutOpaque_t {
    pub data: [u64; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipblasLtMatrixLayoutOpaque_t",
    ][::core::mem::size_of::<hipblasLtMatrixLayoutOpaque_t>() - 32usize];
    [
        "Alignment of hipblasLtMatrixLayoutOpaque_t",
    ][::core::mem::align_of::<hipblasLtMatrixLayoutOpaque_t>() - 8usize];
    [
        "Offset of field: hipblasLtMatrixLayoutOpaque_t::data",
    ][::core::mem::offset_of!(hipblasLtMatrixLayoutOpaque_t, data) - 0usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipblasLtMatmulPreferenceOpaque_t {
    pub data: [u64; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipblasLtMatmulPreferenceOpaque_t",
    ][::core::mem::size_of::<hipblasLtMatmulPreferenceOpaque_t>() - 40usize];
    [
        "Alignment of hipblasLtMatmulPreferenceOpaque_t",
    ][::core::mem::align_of::<hipblasLtMatmulPreferenceOpaque_t>() - 8usize];
    [
        "Offset of field: hipblasLtMatmulPreferenceOpaque_t::data",
    ][::core::mem::offset_of!(hipblasLtMatmulPreferenceOpaque_t, data) - 0usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hipblasLtMatrixTransformDescOpaque_t {
    pub data: [u64; 8usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of hipblasLtMatrixTransformDescOpaque_t",
    ][::core::mem::size_of::<hipblasLtMatrixTransformDescOpaque_t>() - 64usize];
    [
        "Alignment of hipblasLtMatrixTransformDescOpaque_t",
    ][::core::mem::align_of::<hipblasLtMatrixTransformDescOpaque_t>() - 8usize];
    [
        "Offset of field: hipblasLtMatrixTransformDescOpaque_t::data",
    ][::core::mem::offset_of!(hipblasLtMatrixTransformDescOpaque_t, data) - 0usize];
};
pub type hipblasLtMatrixTransformDesc_t = *mut hipblasLtMatrixTransformDescOpaque_t;
pub type hipblasLtHandle_t = *mut ::core::ffi::c_void;
pub type hipblasLtMatmulDesc_t = *mut hipblasLtMatmulDescOpaque_t;
pub type hipblasLtMatrixLayout_t = *mut hipblasLtMatrixLayoutOpaque_t;
pub type hipblasLtMatmulPreference_t = *mut hipblasLtMatmulPreferenceOpaque_t;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct _hipblasLtMatmulAlgo_t {
    pub data: [u8; 16usize],
    pub max_workspace_bytes: usize,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of _hipblasLtMatmulAlgo_t",
    ][::core::mem::size_of::<_hipblasLtMatmulAlgo_t>() - 24usize];
    [
        "Alignment of _hipblasLtMatmulAlgo_t",
    ][::core::mem::align_of::<_hipblasLtMatmulAlgo_t>() - 8usize];
    [
        "Offset of field: _hipblasLtMatmulAlgo_t::data",
    ][::core::mem::offset_of!(_hipblasLtMatmulAlgo_t, data) - 0usize];
    [
        "Offset of field: _hipblasLtMatmulAlgo_t::max_workspace_bytes",
    ][::core::mem::offset_of!(_hipblasLtMatmulAlgo_t, max_workspace_bytes) - 16usize];
};
pub type hipblasLtMatmulAlgo_t = _hipblasLtMatmulAlgo_t;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _hipblasLtMatmulHeuristicResult_t {
    pub algo: hipblasLtMatmulAlgo_t,
    pub workspaceSize: usize,
    pub state: hipblasStatus_t,
    pub wavesCount: f32,
    pub reserved: [::core::ffi::c_int; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of _hipblasLtMatmulHeuristicResult_t",
    ][::core::mem::size_of::<_hipblasLtMatmulHeuristicResult_t>() - 56usize];
    [
        "Alignment of _hipblasLtMatmulHeuristicResult_t",
    ][::core::mem::align_of::<_hipblasLtMatmulHeuristicResult_t>() - 8usize];
    [
        "Offset of field: _hipblasLtMatmulHeuristicResult_t::algo",
    ][::core::mem::offset_of!(_hipblasLtMatmulHeuristicResult_t, algo) - 0usize];
    [
        "Offset of field: _hipblasLtMatmulHeuristicResult_t::workspaceSize",
    ][::core::mem::offset_of!(_hipblasLtMatmulHeuristicResult_t, workspaceSize)
        - 24usize];
    [
        "Offset of field: _hipblasLtMatmulHeuristicResult_t::state",
    ][::core::mem::offset_of!(_hipblasLtMatmulHeuristicResult_t, state) - 32usize];
    [
        "Offset of field: _hipblasLtMatmulHeuristicResult_t::wavesCount",
    ][::core::mem::offset_of!(_hipblasLtMatmulHeuristicResult_t, wavesCount) - 36usize];
    [
        "Offset of field: _hipblasLtMatmulHeuristicResult_t::reserved",
    ][::core::mem::offset_of!(_hipblasLtMatmulHeuristicResult_t, reserved) - 40usize];
};
impl Default for _hipblasLtMatmulHeuristicResult_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type hipblasLtMatmulHeuristicResult_t = _hipblasLtMatmulHeuristicResult_t;
crate::table::table! {
    Hipblaslt;
    pub fn hipblasLtGetVersion(
        handle: hipblasLtHandle_t,
        version: *mut ::core::ffi::c_int,
    ) -> hipblasStatus_t;
    pub fn hipblasLtGetGitRevision(
        handle: hipblasLtHandle_t,
        rev: *mut ::core::ffi::c_char,
    ) -> hipblasStatus_t;
    pub fn hipblasLtGetArchName(
        archName: *mut *mut ::core::ffi::c_char,
    ) -> hipblasStatus_t;
    pub fn hipblasLtCreate(handle: *mut hipblasLtHandle_t) -> hipblasStatus_t;
    pub fn hipblasLtDestroy(handle: hipblasLtHandle_t) -> hipblasStatus_t;
    pub fn hipblasLtMatrixLayoutCreate(
        matLayout: *mut hipblasLtMatrixLayout_t,
        type_: hipDataType,
        rows: u64,
        cols: u64,
        ld: i64,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixLayoutDestroy(
        matLayout: hipblasLtMatrixLayout_t,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixLayoutSetAttribute(
        matLayout: hipblasLtMatrixLayout_t,
        attr: hipblasLtMatrixLayoutAttribute_t,
        buf: *const ::core::ffi::c_void,
        sizeInBytes: usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixLayoutGetAttribute(
        matLayout: hipblasLtMatrixLayout_t,
        attr: hipblasLtMatrixLayoutAttribute_t,
        buf: *mut ::core::ffi::c_void,
        sizeInBytes: usize,
        sizeWritten: *mut usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulDescCreate(
        matmulDesc: *mut hipblasLtMatmulDesc_t,
        computeType: hipblasComputeType_t,
        scaleType: hipDataType,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulDescDestroy(
        matmulDesc: hipblasLtMatmulDesc_t,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulDescSetAttribute(
        matmulDesc: hipblasLtMatmulDesc_t,
        attr: hipblasLtMatmulDescAttributes_t,
        buf: *const ::core::ffi::c_void,
        sizeInBytes: usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulDescGetAttribute(
        matmulDesc: hipblasLtMatmulDesc_t,
        attr: hipblasLtMatmulDescAttributes_t,
        buf: *mut ::core::ffi::c_void,
        sizeInBytes: usize,
        sizeWritten: *mut usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulPreferenceCreate(
        pref: *mut hipblasLtMatmulPreference_t,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulPreferenceDestroy(
        pref: hipblasLtMatmulPreference_t,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulPreferenceSetAttribute(
        pref: hipblasLtMatmulPreference_t,
        attr: hipblasLtMatmulPreferenceAttributes_t,
        buf: *const ::core::ffi::c_void,
        sizeInBytes: usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulPreferenceGetAttribute(
        pref: hipblasLtMatmulPreference_t,
        attr: hipblasLtMatmulPreferenceAttributes_t,
        buf: *mut ::core::ffi::c_void,
        sizeInBytes: usize,
        sizeWritten: *mut usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmulAlgoGetHeuristic(
        handle: hipblasLtHandle_t,
        matmulDesc: hipblasLtMatmulDesc_t,
        Adesc: hipblasLtMatrixLayout_t,
        Bdesc: hipblasLtMatrixLayout_t,
        Cdesc: hipblasLtMatrixLayout_t,
        Ddesc: hipblasLtMatrixLayout_t,
        pref: hipblasLtMatmulPreference_t,
        requestedAlgoCount: ::core::ffi::c_int,
        heuristicResultsArray: *mut hipblasLtMatmulHeuristicResult_t,
        returnAlgoCount: *mut ::core::ffi::c_int,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatmul(
        handle: hipblasLtHandle_t,
        matmulDesc: hipblasLtMatmulDesc_t,
        alpha: *const ::core::ffi::c_void,
        A: *const ::core::ffi::c_void,
        Adesc: hipblasLtMatrixLayout_t,
        B: *const ::core::ffi::c_void,
        Bdesc: hipblasLtMatrixLayout_t,
        beta: *const ::core::ffi::c_void,
        C: *const ::core::ffi::c_void,
        Cdesc: hipblasLtMatrixLayout_t,
        D: *mut ::core::ffi::c_void,
        Ddesc: hipblasLtMatrixLayout_t,
        algo: *const hipblasLtMatmulAlgo_t,
        workspace: *mut ::core::ffi::c_void,
        workspaceSizeInBytes: usize,
        stream: hipStream_t,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixTransformDescCreate(
        transformDesc: *mut hipblasLtMatrixTransformDesc_t,
        scaleType: hipDataType,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixTransformDescDestroy(
        transformDesc: hipblasLtMatrixTransformDesc_t,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixTransformDescSetAttribute(
        transformDesc: hipblasLtMatrixTransformDesc_t,
        attr: hipblasLtMatrixTransformDescAttributes_t,
        buf: *const ::core::ffi::c_void,
        sizeInBytes: usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixTransformDescGetAttribute(
        transformDesc: hipblasLtMatrixTransformDesc_t,
        attr: hipblasLtMatrixTransformDescAttributes_t,
        buf: *mut ::core::ffi::c_void,
        sizeInBytes: usize,
        sizeWritten: *mut usize,
    ) -> hipblasStatus_t;
    pub fn hipblasLtMatrixTransform(
        lightHandle: hipblasLtHandle_t,
        transformDesc: hipblasLtMatrixTransformDesc_t,
        alpha: *const ::core::ffi::c_void,
        A: *const ::core::ffi::c_void,
        Adesc: hipblasLtMatrixLayout_t,
        beta: *const ::core::ffi::c_void,
        B: *const ::core::ffi::c_void,
        Bdesc: hipblasLtMatrixLayout_t,
        C: *mut ::core::ffi::c_void,
        Cdesc: hipblasLtMatrixLayout_t,
        stream: hipStream_t,
    ) -> hipblasStatus_t;
}
crate::status::status! {
    hipblasStatus_t, success: HIPBLAS_STATUS_SUCCESS;
    HIPBLAS_STATUS_SUCCESS,
    HIPBLAS_STATUS_NOT_INITIALIZED,
    HIPBLAS_STATUS_ALLOC_FAILED,
    HIPBLAS_STATUS_INVALID_VALUE,
    HIPBLAS_STATUS_MAPPING_ERROR,
    HIPBLAS_STATUS_EXECUTION_FAILED,
    HIPBLAS_STATUS_INTERNAL_ERROR,
    HIPBLAS_STATUS_NOT_SUPPORTED,
    HIPBLAS_STATUS_ARCH_MISMATCH,
    HIPBLAS_STATUS_HANDLE_IS_NULLPTR,
    HIPBLAS_STATUS_INVALID_ENUM,
    HIPBLAS_STATUS_UNKNOWN,
}
