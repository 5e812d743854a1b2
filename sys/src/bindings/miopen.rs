// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

pub type miopenAcceleratorQueue_t = hipStream_t;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenHandle {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of miopenHandle"][::core::mem::size_of::<miopenHandle>() - 1usize];
    ["Alignment of miopenHandle"][::core::mem::align_of::<miopenHandle>() - 1usize];
};
pub type miopenHandle_t = *mut miopenHandle;
impl miopenStatus_t {
    pub const miopenStatusSuccess: miopenStatus_t = miopenStatus_t(0);
    pub const miopenStatusNotInitialized: miopenStatus_t = miopenStatus_t(1);
    pub const miopenStatusInvalidValue: miopenStatus_t = miopenStatus_t(2);
    pub const miopenStatusBadParm: miopenStatus_t = miopenStatus_t(3);
    pub const miopenStatusAllocFailed: miopenStatus_t = miopenStatus_t(4);
    pub const miopenStatusInternalError: miopenStatus_t = miopenStatus_t(5);
    pub const miopenStatusNotImplemented: miopenStatus_t = miopenStatus_t(6);
    pub const miopenStatusUnknownError: miopenStatus_t = miopenStatus_t(7);
    pub const miopenStatusUnsupportedOp: miopenStatus_t = miopenStatus_t(8);
    pub const miopenStatusGpuOperationsSkipped: miopenStatus_t = miopenStatus_t(9);
    pub const miopenStatusVersionMismatch: miopenStatus_t = miopenStatus_t(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenStatus_t(pub ::core::ffi::c_uint);
pub type miopenAllocatorFunction = ::core::option::Option<
    unsafe extern "C" fn(
        context: *mut ::core::ffi::c_void,
        sizeBytes: usize,
    ) -> *mut ::core::ffi::c_void,
>;
pub type miopenDeallocatorFunction = ::core::option::Option<
    unsafe extern "C" fn(
        context: *mut ::core::ffi::c_void,
        memory: *mut ::core::ffi::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenFusionOpDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenFusionOpDescriptor",
    ][::core::mem::size_of::<miopenFusionOpDescriptor>() - 1usize];
    [
        "Alignment of miopenFusionOpDescriptor",
    ][::core::mem::align_of::<miopenFusionOpDescriptor>() - 1usize];
};
pub type miopenFusionOpDescriptor_t = *mut miopenFusionOpDescriptor;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenTensorDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenTensorDescriptor",
    ][::core::mem::size_of::<miopenTensorDescriptor>() - 1usize];
    [
        "Alignment of miopenTensorDescriptor",
    ][::core::mem::align_of::<miopenTensorDescriptor>() - 1usize];
};
pub type miopenTensorDescriptor_t = *mut miopenTensorDescriptor;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenConvolutionDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenConvolutionDescriptor",
    ][::core::mem::size_of::<miopenConvolutionDescriptor>() - 1usize];
    [
        "Alignment of miopenConvolutionDescriptor",
    ][::core::mem::align_of::<miopenConvolutionDescriptor>() - 1usize];
};
pub type miopenConvolutionDescriptor_t = *mut miopenConvolutionDescriptor;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenActivationDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenActivationDescriptor",
    ][::core::mem::size_of::<miopenActivationDescriptor>() - 1usize];
    [
        "Alignment of miopenActivationDescriptor",
    ][::core::mem::align_of::<miopenActivationDescriptor>() - 1usize];
};
pub type miopenActivationDescriptor_t = *mut miopenActivationDescriptor;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenReduceTensorDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenReduceTensorDescriptor",
    ][::core::mem::size_of::<miopenReduceTensorDescriptor>() - 1usize];
    [
        "Alignment of miopenReduceTensorDescriptor",
    ][::core::mem::align_of::<miopenReduceTensorDescriptor>() - 1usize];
};
pub type miopenReduceTensorDescriptor_t = *mut miopenReduceTensorDescriptor;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenMhaDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenMhaDescriptor",
    ][::core::mem::size_of::<miopenMhaDescriptor>() - 1usize];
    [
        "Alignment of miopenMhaDescriptor",
    ][::core::mem::align_of::<miopenMhaDescriptor>() - 1usize];
};
pub type miopenMhaDescriptor_t = *mut miopenMhaDescriptor;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenSoftmaxDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenSoftmaxDescriptor",
    ][::core::mem::size_of::<miopenSoftmaxDescriptor>() - 1usize];
    [
        "Alignment of miopenSoftmaxDescriptor",
    ][::core::mem::align_of::<miopenSoftmaxDescriptor>() - 1usize];
};
pub type miopenSoftmaxDescriptor_t = *mut miopenSoftmaxDescriptor;
impl miopenDataType_t {
    pub const miopenHalf: miopenDataType_t = miopenDataType_t(0);
    pub const miopenFloat: miopenDataType_t = miopenDataType_t(1);
    pub const miopenInt32: miopenDataType_t = miopenDataType_t(2);
    pub const miopenInt8: miopenDataType_t = miopenDataType_t(3);
    pub const miopenBFloat16: miopenDataType_t = miopenDataType_t(5);
    pub const miopenDouble: miopenDataType_t = miopenDataType_t(6);
    pub const miopenFloat8_fnuz: miopenDataType_t = miopenDataType_t(7);
    pub const miopenBFloat8_fnuz: miopenDataType_t = miopenDataType_t(8);
    pub const miopenInt64: miopenDataType_t = miopenDataType_t(9);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenDataType_t(pub ::core::ffi::c_uint);
impl miopenTensorLayout_t {
    pub const miopenTensorNCHW: miopenTensorLayout_t = miopenTensorLayout_t(0);
    pub const miopenTensorNHWC: miopenTensorLayout_t = miopenTensorLayout_t(1);
    pub const miopenTensorCHWN: miopenTensorLayout_t = miopenTensorLayout_t(2);
    pub const miopenTensorNCHWc4: miopenTensorLayout_t = miopenTensorLayout_t(3);
    pub const miopenTensorNCHWc8: miopenTensorLayout_t = miopenTensorLayout_t(4);
    pub const miopenTensorCHWNc4: miopenTensorLayout_t = miopenTensorLayout_t(5);
    pub const miopenTensorCHWNc8: miopenTensorLayout_t = miopenTensorLayout_t(6);
    pub const miopenTensorNCDHW: miopenTensorLayout_t = miopenTensorLayout_t(7);
    pub const miopenTensorNDHWC: miopenTensorLayout_t = miopenTensorLayout_t(8);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenTensorLayout_t(pub ::core::ffi::c_uint);
impl miopenTensorOp_t {
    pub const miopenTensorOpAdd: miopenTensorOp_t = miopenTensorOp_t(0);
    pub const miopenTensorOpMul: miopenTensorOp_t = miopenTensorOp_t(1);
    pub const miopenTensorOpMin: miopenTensorOp_t = miopenTensorOp_t(2);
    pub const miopenTensorOpMax: miopenTensorOp_t = miopenTensorOp_t(3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenTensorOp_t(pub ::core::ffi::c_uint);
impl miopenConvolutionMode_t {
    pub const miopenConvolution: miopenConvolutionMode_t = miopenConvolutionMode_t(0);
    pub const miopenTranspose: miopenConvolutionMode_t = miopenConvolutionMode_t(1);
    pub const miopenGroupConv: miopenConvolutionMode_t = miopenConvolutionMode_t(2);
    pub const miopenDepthwise: miopenConvolutionMode_t = miopenConvolutionMode_t(3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenConvolutionMode_t(pub ::core::ffi::c_uint);
impl miopenNormMode_t {
    pub const MIOPEN_ELEMENTWISE_AFFINE: miopenNormMode_t = miopenNormMode_t(0);
    pub const MIOPEN_WEIGHT_BIAS: miopenNormMode_t = miopenNormMode_t(1);
    pub const MIOPEN_ELEMENTWISE_AFFINE_FUSED_ADD: miopenNormMode_t = miopenNormMode_t(
        2,
    );
    pub const MIOPEN_WEIGHT_BIAS_FUSED_ADD: miopenNormMode_t = miopenNormMode_t(3);
    pub const MIOPEN_ELEMENTWISE_AFFINE_T5: miopenNormMode_t = miopenNormMode_t(4);
    pub const MIOPEN_WEIGHT_BIAS_T5: miopenNormMode_t = miopenNormMode_t(5);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenNormMode_t(pub ::core::ffi::c_uint);
impl miopenActivationMode_t {
    pub const miopenActivationPASTHRU: miopenActivationMode_t = miopenActivationMode_t(
        0,
    );
    pub const miopenActivationLOGISTIC: miopenActivationMode_t = miopenActivationMode_t(
        1,
    );
    pub const miopenActivationTANH: miopenActivationMode_t = miopenActivationMode_t(2);
    pub const miopenActivationRELU: miopenActivationMode_t = miopenActivationMode_t(3);
    pub const miopenActivationSOFTRELU: miopenActivationMode_t = miopenActivationMode_t(
        4,
    );
    pub const miopenActivationABS: miopenActivationMode_t = miopenActivationMode_t(5);
    pub const miopenActivationPOWER: miopenActivationMode_t = miopenActivationMode_t(6);
    pub const miopenActivationCLIPPEDRELU: miopenActivationMode_t = miopenActivationMode_t(
        7,
    );
    pub const miopenActivationLEAKYRELU: miopenActivationMode_t = miopenActivationMode_t(
        8,
    );
    pub const miopenActivationELU: miopenActivationMode_t = miopenActivationMode_t(9);
    pub const miopenActivationCLAMP: miopenActivationMode_t = miopenActivationMode_t(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenActivationMode_t(pub ::core::ffi::c_uint);
impl miopenSoftmaxAlgorithm_t {
    pub const MIOPEN_SOFTMAX_FAST: miopenSoftmaxAlgorithm_t = miopenSoftmaxAlgorithm_t(
        0,
    );
    pub const MIOPEN_SOFTMAX_ACCURATE: miopenSoftmaxAlgorithm_t = miopenSoftmaxAlgorithm_t(
        1,
    );
    pub const MIOPEN_SOFTMAX_LOG: miopenSoftmaxAlgorithm_t = miopenSoftmaxAlgorithm_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenSoftmaxAlgorithm_t(pub ::core::ffi::c_uint);
impl miopenSoftmaxMode_t {
    pub const MIOPEN_SOFTMAX_MODE_INSTANCE: miopenSoftmaxMode_t = miopenSoftmaxMode_t(0);
    pub const MIOPEN_SOFTMAX_MODE_CHANNEL: miopenSoftmaxMode_t = miopenSoftmaxMode_t(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenSoftmaxMode_t(pub ::core::ffi::c_uint);
impl miopenReduceTensorOp_t {
    pub const MIOPEN_REDUCE_TENSOR_ADD: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        0,
    );
    pub const MIOPEN_REDUCE_TENSOR_MUL: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        1,
    );
    pub const MIOPEN_REDUCE_TENSOR_MIN: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        2,
    );
    pub const MIOPEN_REDUCE_TENSOR_MAX: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        3,
    );
    pub const MIOPEN_REDUCE_TENSOR_AMAX: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        4,
    );
    pub const MIOPEN_REDUCE_TENSOR_AVG: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        5,
    );
    pub const MIOPEN_REDUCE_TENSOR_NORM1: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        6,
    );
    pub const MIOPEN_REDUCE_TENSOR_NORM2: miopenReduceTensorOp_t = miopenReduceTensorOp_t(
        7,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenReduceTensorOp_t(pub ::core::ffi::c_uint);
impl miopenNanPropagation_t {
    pub const MIOPEN_NOT_PROPAGATE_NAN: miopenNanPropagation_t = miopenNanPropagation_t(
        0,
    );
    pub const MIOPEN_PROPAGATE_NAN: miopenNanPropagation_t = miopenNanPropagation_t(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenNanPropagation_t(pub ::core::ffi::c_uint);
impl miopenReduceTensorIndices_t {
    pub const MIOPEN_REDUCE_TENSOR_NO_INDICES: miopenReduceTensorIndices_t = miopenReduceTensorIndices_t(
        0,
    );
    pub const MIOPEN_REDUCE_TENSOR_FLATTENED_INDICES: miopenReduceTensorIndices_t = miopenReduceTensorIndices_t(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenReduceTensorIndices_t(pub ::core::ffi::c_uint);
impl miopenIndicesType_t {
    pub const MIOPEN_32BIT_INDICES: miopenIndicesType_t = miopenIndicesType_t(0);
    pub const MIOPEN_64BIT_INDICES: miopenIndicesType_t = miopenIndicesType_t(1);
    pub const MIOPEN_16BIT_INDICES: miopenIndicesType_t = miopenIndicesType_t(2);
    pub const MIOPEN_8BIT_INDICES: miopenIndicesType_t = miopenIndicesType_t(3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenIndicesType_t(pub ::core::ffi::c_uint);
impl miopenConvolutionAttrib_t {
    pub const MIOPEN_CONVOLUTION_ATTRIB_FP16_ALT_IMPL: miopenConvolutionAttrib_t = miopenConvolutionAttrib_t(
        0,
    );
    pub const MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC: miopenConvolutionAttrib_t = miopenConvolutionAttrib_t(
        1,
    );
    pub const MIOPEN_CONVOLUTION_ATTRIB_FP8_ROUNDING_MODE: miopenConvolutionAttrib_t = miopenConvolutionAttrib_t(
        2,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenConvolutionAttrib_t(pub ::core::ffi::c_uint);
impl miopenConvolutionFindMode_t {
    pub const miopenConvolutionFindModeNormal: miopenConvolutionFindMode_t = miopenConvolutionFindMode_t(
        1,
    );
    pub const miopenConvolutionFindModeFast: miopenConvolutionFindMode_t = miopenConvolutionFindMode_t(
        2,
    );
    pub const miopenConvolutionFindModeHybrid: miopenConvolutionFindMode_t = miopenConvolutionFindMode_t(
        3,
    );
    pub const miopenConvolutionFindModeDynamicHybrid: miopenConvolutionFindMode_t = miopenConvolutionFindMode_t(
        5,
    );
    pub const miopenConvolutionFindModeTrustVerify: miopenConvolutionFindMode_t = miopenConvolutionFindMode_t(
        6,
    );
    pub const miopenConvolutionFindModeTrustVerifyFull: miopenConvolutionFindMode_t = miopenConvolutionFindMode_t(
        7,
    );
    pub const miopenConvolutionFindModeDefault: miopenConvolutionFindMode_t = miopenConvolutionFindMode_t(
        5,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenConvolutionFindMode_t(pub ::core::ffi::c_uint);
impl miopenConvFwdAlgorithm_t {
    pub const miopenConvolutionFwdAlgoGEMM: miopenConvFwdAlgorithm_t = miopenConvFwdAlgorithm_t(
        0,
    );
    pub const miopenConvolutionFwdAlgoDirect: miopenConvFwdAlgorithm_t = miopenConvFwdAlgorithm_t(
        1,
    );
    pub const miopenConvolutionFwdAlgoFFT: miopenConvFwdAlgorithm_t = miopenConvFwdAlgorithm_t(
        2,
    );
    pub const miopenConvolutionFwdAlgoWinograd: miopenConvFwdAlgorithm_t = miopenConvFwdAlgorithm_t(
        3,
    );
    pub const miopenConvolutionFwdAlgoImplicitGEMM: miopenConvFwdAlgorithm_t = miopenConvFwdAlgorithm_t(
        5,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenConvFwdAlgorithm_t(pub ::core::ffi::c_uint);
impl miopenConvBwdWeightsAlgorithm_t {
    pub const miopenConvolutionBwdWeightsAlgoGEMM: miopenConvBwdWeightsAlgorithm_t = miopenConvBwdWeightsAlgorithm_t(
        0,
    );
    pub const miopenConvolutionBwdWeightsAlgoDirect: miopenConvBwdWeightsAlgorithm_t = miopenConvBwdWeightsAlgorithm_t(
        1,
    );
    pub const miopenConvolutionBwdWeightsAlgoWinograd: miopenConvBwdWeightsAlgorithm_t = miopenConvBwdWeightsAlgorithm_t(
        3,
    );
    pub const miopenConvolutionBwdWeightsAlgoImplicitGEMM: miopenConvBwdWeightsAlgorithm_t = miopenConvBwdWeightsAlgorithm_t(
        5,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenConvBwdWeightsAlgorithm_t(pub ::core::ffi::c_uint);
impl miopenConvBwdDataAlgorithm_t {
    pub const miopenConvolutionBwdDataAlgoGEMM: miopenConvBwdDataAlgorithm_t = miopenConvBwdDataAlgorithm_t(
        0,
    );
    pub const miopenConvolutionBwdDataAlgoDirect: miopenConvBwdDataAlgorithm_t = miopenConvBwdDataAlgorithm_t(
        1,
    );
    pub const miopenConvolutionBwdDataAlgoFFT: miopenConvBwdDataAlgorithm_t = miopenConvBwdDataAlgorithm_t(
        2,
    );
    pub const miopenConvolutionBwdDataAlgoWinograd: miopenConvBwdDataAlgorithm_t = miopenConvBwdDataAlgorithm_t(
        3,
    );
    pub const miopenTransposeBwdDataAlgoGEMM: miopenConvBwdDataAlgorithm_t = miopenConvBwdDataAlgorithm_t(
        4,
    );
    pub const miopenConvolutionBwdDataAlgoImplicitGEMM: miopenConvBwdDataAlgorithm_t = miopenConvBwdDataAlgorithm_t(
        5,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenConvBwdDataAlgorithm_t(pub ::core::ffi::c_uint);
impl miopenConvAlgorithm_t {
    pub const miopenConvolutionAlgoGEMM: miopenConvAlgorithm_t = miopenConvAlgorithm_t(
        0,
    );
    pub const miopenConvolutionAlgoDirect: miopenConvAlgorithm_t = miopenConvAlgorithm_t(
        1,
    );
    pub const miopenConvolutionAlgoFFT: miopenConvAlgorithm_t = miopenConvAlgorithm_t(2);
    pub const miopenConvolutionAlgoWinograd: miopenConvAlgorithm_t = miopenConvAlgorithm_t(
        3,
    );
    pub const miopenConvolutionAlgoImplicitGEMM: miopenConvAlgorithm_t = miopenConvAlgorithm_t(
        5,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenConvAlgorithm_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Copy, Clone)]
pub struct miopenConvAlgoPerf_t {
    pub __bindgen_anon_1: miopenConvAlgoPerf_t__bindgen_ty_1,
    pub time: f32,
    pub memory: usize,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union miopenConvAlgoPerf_t__bindgen_ty_1 {
    pub fwd_algo: miopenConvFwdAlgorithm_t,
    pub bwd_weights_algo: miopenConvBwdWeightsAlgorithm_t,
    pub bwd_data_algo: miopenConvBwdDataAlgorithm_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenConvAlgoPerf_t__bindgen_ty_1",
    ][::core::mem::size_of::<miopenConvAlgoPerf_t__bindgen_ty_1>() - 4usize];
    [
        "Alignment of miopenConvAlgoPerf_t__bindgen_ty_1",
    ][::core::mem::align_of::<miopenConvAlgoPerf_t__bindgen_ty_1>() - 4usize];
    [
        "Offset of field: miopenConvAlgoPerf_t__bindgen_ty_1::fwd_algo",
    ][::core::mem::offset_of!(miopenConvAlgoPerf_t__bindgen_ty_1, fwd_algo) - 0usize];
    [
        "Offset of field: miopenConvAlgoPerf_t__bindgen_ty_1::bwd_weights_algo",
    ][::core::mem::offset_of!(miopenConvAlgoPerf_t__bindgen_ty_1, bwd_weights_algo)
        - 0usize];
    [
        "Offset of field: miopenConvAlgoPerf_t__bindgen_ty_1::bwd_data_algo",
    ][::core::mem::offset_of!(miopenConvAlgoPerf_t__bindgen_ty_1, bwd_data_algo)
        - 0usize];
};
impl Default for miopenConvAlgoPerf_t__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenConvAlgoPerf_t",
    ][::core::mem::size_of::<miopenConvAlgoPerf_t>() - 16usize];
    [
        "Alignment of miopenConvAlgoPerf_t",
    ][::core::mem::align_of::<miopenConvAlgoPerf_t>() - 8usize];
    [
        "Offset of field: miopenConvAlgoPerf_t::time",
    ][::core::mem::offset_of!(miopenConvAlgoPerf_t, time) - 4usize];
    [
        "Offset of field: miopenConvAlgoPerf_t::memory",
    ][::core::mem::offset_of!(miopenConvAlgoPerf_t, memory) - 8usize];
};
impl Default for miopenConvAlgoPerf_t {
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
pub struct miopenConvSolution_t {
    pub time: f32,
    pub workspace_size: usize,
    pub solution_id: u64,
    pub algorithm: miopenConvAlgorithm_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenConvSolution_t",
    ][::core::mem::size_of::<miopenConvSolution_t>() - 32usize];
    [
        "Alignment of miopenConvSolution_t",
    ][::core::mem::align_of::<miopenConvSolution_t>() - 8usize];
    [
        "Offset of field: miopenConvSolution_t::time",
    ][::core::mem::offset_of!(miopenConvSolution_t, time) - 0usize];
    [
        "Offset of field: miopenConvSolution_t::workspace_size",
    ][::core::mem::offset_of!(miopenConvSolution_t, workspace_size) - 8usize];
    [
        "Offset of field: miopenConvSolution_t::solution_id",
    ][::core::mem::offset_of!(miopenConvSolution_t, solution_id) - 16usize];
    [
        "Offset of field: miopenConvSolution_t::algorithm",
    ][::core::mem::offset_of!(miopenConvSolution_t, algorithm) - 24usize];
};
impl Default for miopenConvSolution_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenFusionPlanDescriptor {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenFusionPlanDescriptor",
    ][::core::mem::size_of::<miopenFusionPlanDescriptor>() - 1usize];
    [
        "Alignment of miopenFusionPlanDescriptor",
    ][::core::mem::align_of::<miopenFusionPlanDescriptor>() - 1usize];
};
pub type miopenFusionPlanDescriptor_t = *mut miopenFusionPlanDescriptor;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenOperatorArgs {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenOperatorArgs",
    ][::core::mem::size_of::<miopenOperatorArgs>() - 1usize];
    [
        "Alignment of miopenOperatorArgs",
    ][::core::mem::align_of::<miopenOperatorArgs>() - 1usize];
};
pub type miopenOperatorArgs_t = *mut miopenOperatorArgs;
impl miopenFusionDirection_t {
    pub const miopenVerticalFusion: miopenFusionDirection_t = miopenFusionDirection_t(0);
    pub const miopenHorizontalFusion: miopenFusionDirection_t = miopenFusionDirection_t(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenFusionDirection_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenProblem {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of miopenProblem"][::core::mem::size_of::<miopenProblem>() - 1usize];
    ["Alignment of miopenProblem"][::core::mem::align_of::<miopenProblem>() - 1usize];
};
pub type miopenProblem_t = *mut miopenProblem;
impl miopenProblemDirection_t {
    pub const miopenProblemDirectionForward: miopenProblemDirection_t = miopenProblemDirection_t(
        0,
    );
    pub const miopenProblemDirectionBackward: miopenProblemDirection_t = miopenProblemDirection_t(
        1,
    );
    pub const miopenProblemDirectionBackwardWeights: miopenProblemDirection_t = miopenProblemDirection_t(
        2,
    );
    pub const miopenProblemDirectionInference: miopenProblemDirection_t = miopenProblemDirection_t(
        4,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenProblemDirection_t(pub ::core::ffi::c_uint);
impl miopenTensorArgumentId_t {
    pub const miopenTensorArgumentIdInvalid: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        0,
    );
    pub const miopenTensorConvolutionX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        1,
    );
    pub const miopenTensorConvolutionW: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        2,
    );
    pub const miopenTensorConvolutionY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        3,
    );
    pub const miopenTensorMhaK: miopenTensorArgumentId_t = miopenTensorArgumentId_t(4);
    pub const miopenTensorMhaQ: miopenTensorArgumentId_t = miopenTensorArgumentId_t(5);
    pub const miopenTensorMhaV: miopenTensorArgumentId_t = miopenTensorArgumentId_t(6);
    pub const miopenTensorMhaDescaleK: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        7,
    );
    pub const miopenTensorMhaDescaleQ: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        8,
    );
    pub const miopenTensorMhaDescaleV: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        9,
    );
    pub const miopenTensorMhaDescaleS: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        10,
    );
    pub const miopenTensorMhaScaleS: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        11,
    );
    pub const miopenTensorMhaScaleO: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        12,
    );
    pub const miopenTensorMhaDropoutProbability: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        13,
    );
    pub const miopenTensorMhaDropoutSeed: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        14,
    );
    pub const miopenTensorMhaDropoutOffset: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        15,
    );
    pub const miopenTensorMhaO: miopenTensorArgumentId_t = miopenTensorArgumentId_t(16);
    pub const miopenTensorMhaAmaxO: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        17,
    );
    pub const miopenTensorMhaAmaxS: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        18,
    );
    pub const miopenTensorMhaM: miopenTensorArgumentId_t = miopenTensorArgumentId_t(19);
    pub const miopenTensorMhaZInv: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        20,
    );
    pub const miopenTensorMhaDO: miopenTensorArgumentId_t = miopenTensorArgumentId_t(21);
    pub const miopenTensorMhaDescaleO: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        22,
    );
    pub const miopenTensorMhaDescaleDO: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        23,
    );
    pub const miopenTensorMhaDescaleDS: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        24,
    );
    pub const miopenTensorMhaScaleDS: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        25,
    );
    pub const miopenTensorMhaScaleDQ: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        26,
    );
    pub const miopenTensorMhaScaleDK: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        27,
    );
    pub const miopenTensorMhaScaleDV: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        28,
    );
    pub const miopenTensorMhaDQ: miopenTensorArgumentId_t = miopenTensorArgumentId_t(29);
    pub const miopenTensorMhaDK: miopenTensorArgumentId_t = miopenTensorArgumentId_t(30);
    pub const miopenTensorMhaDV: miopenTensorArgumentId_t = miopenTensorArgumentId_t(31);
    pub const miopenTensorMhaAmaxDQ: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        32,
    );
    pub const miopenTensorMhaAmaxDK: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        33,
    );
    pub const miopenTensorMhaAmaxDV: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        34,
    );
    pub const miopenTensorMhaAmaxDS: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        35,
    );
    pub const miopenTensorMhaBias: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        36,
    );
    pub const miopenTensorActivationX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        37,
    );
    pub const miopenTensorActivationY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        38,
    );
    pub const miopenTensorActivationDX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        39,
    );
    pub const miopenTensorActivationDY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        40,
    );
    pub const miopenTensorBiasX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(41);
    pub const miopenTensorBiasY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(42);
    pub const miopenTensorBias: miopenTensorArgumentId_t = miopenTensorArgumentId_t(43);
    pub const miopenTensorSoftmaxX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        44,
    );
    pub const miopenTensorSoftmaxY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        45,
    );
    pub const miopenTensorSoftmaxDX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        46,
    );
    pub const miopenTensorSoftmaxDY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        47,
    );
    pub const miopenTensorBatchnormX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        48,
    );
    pub const miopenTensorBatchnormY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        49,
    );
    pub const miopenTensorBatchnormRunningMean: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        50,
    );
    pub const miopenTensorBatchnormRunningVariance: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        51,
    );
    pub const miopenTensorBatchnormSavedMean: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        52,
    );
    pub const miopenTensorBatchnormSavedVariance: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        53,
    );
    pub const miopenTensorBatchnormScale: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        54,
    );
    pub const miopenTensorBatchnormScaleDiff: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        55,
    );
    pub const miopenTensorBatchnormEstimatedMean: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        56,
    );
    pub const miopenTensorBatchnormEstimatedVariance: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        57,
    );
    pub const miopenTensorBatchnormBias: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        58,
    );
    pub const miopenTensorBatchnormBiasDiff: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        59,
    );
    pub const miopenTensorBatchnormDX: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        60,
    );
    pub const miopenTensorBatchnormDY: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        61,
    );
    pub const miopenTensorArgumentIsScalar: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        2147483648,
    );
    pub const miopenTensorMhaMask: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        2147483649,
    );
    pub const miopenScalarBatchnormExpAvgFactor: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        2147483650,
    );
    pub const miopenScalarBatchnormEpsilon: miopenTensorArgumentId_t = miopenTensorArgumentId_t(
        2147483651,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenTensorArgumentId_t(pub ::core::ffi::c_uint);
impl miopenFindResultsOrder_t {
    pub const miopenFindResultsOrderByTime: miopenFindResultsOrder_t = miopenFindResultsOrder_t(
        0,
    );
    pub const miopenFindResultsOrderByWorkspaceSize: miopenFindResultsOrder_t = miopenFindResultsOrder_t(
        1,
    );
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenFindResultsOrder_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenFindOptions {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of miopenFindOptions"][::core::mem::size_of::<miopenFindOptions>() - 1usize];
    [
        "Alignment of miopenFindOptions",
    ][::core::mem::align_of::<miopenFindOptions>() - 1usize];
};
pub type miopenFindOptions_t = *mut miopenFindOptions;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct miopenSolution {
    pub _address: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of miopenSolution"][::core::mem::size_of::<miopenSolution>() - 1usize];
    ["Alignment of miopenSolution"][::core::mem::align_of::<miopenSolution>() - 1usize];
};
pub type miopenSolution_t = *mut miopenSolution;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct miopenTensorArgument_t {
    pub id: miopenTensorArgumentId_t,
    pub descriptor: *mut miopenTensorDescriptor_t,
    pub buffer: *mut ::core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of miopenTensorArgument_t",
    ][::core::mem::size_of::<miopenTensorArgument_t>() - 24usize];
    [
        "Alignment of miopenTensorArgument_t",
    ][::core::mem::align_of::<miopenTensorArgument_t>() - 8usize];
    [
        "Offset of field: miopenTensorArgument_t::id",
    ][::core::mem::offset_of!(miopenTensorArgument_t, id) - 0usize];
    [
        "Offset of field: miopenTensorArgument_t::descriptor",
    ][::core::mem::offset_of!(miopenTensorArgument_t, descriptor) - 8usize];
    [
        "Offset of field: miopenTensorArgument_t::buffer",
    ][::core::mem::offset_of!(miopenTensorArgument_t, buffer) - 16usize];
};
impl Default for miopenTensorArgument_t {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl miopenTuningPolicy_t {
    pub const miopenTuningPolicyNone: miopenTuningPolicy_t = miopenTuningPolicy_t(1);
    pub const miopenTuningPolicyDbUpdate: miopenTuningPolicy_t = miopenTuningPolicy_t(2);
    pub const miopenTuningPolicySearch: miopenTuningPolicy_t = miopenTuningPolicy_t(3);
    pub const miopenTuningPolicySearchDbUpdate: miopenTuningPolicy_t = miopenTuningPolicy_t(
        4,
    );
    pub const miopenTuningPolicyDbClean: miopenTuningPolicy_t = miopenTuningPolicy_t(5);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct miopenTuningPolicy_t(pub ::core::ffi::c_uint);
crate::table::table! {
    Miopen;
    pub fn miopenGetErrorString(error: miopenStatus_t) -> *const ::core::ffi::c_char;
    pub fn miopenGetVersion(
        major: *mut usize,
        minor: *mut usize,
        patch: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenCreate(handle: *mut miopenHandle_t) -> miopenStatus_t;
    pub fn miopenCreateWithStream(
        handle: *mut miopenHandle_t,
        stream: miopenAcceleratorQueue_t,
    ) -> miopenStatus_t;
    pub fn miopenDestroy(handle: miopenHandle_t) -> miopenStatus_t;
    pub fn miopenSetStream(
        handle: miopenHandle_t,
        streamID: miopenAcceleratorQueue_t,
    ) -> miopenStatus_t;
    pub fn miopenGetStream(
        handle: miopenHandle_t,
        streamID: *mut miopenAcceleratorQueue_t,
    ) -> miopenStatus_t;
    pub fn miopenSetAllocator(
        handle: miopenHandle_t,
        allocator: miopenAllocatorFunction,
        deallocator: miopenDeallocatorFunction,
        allocatorContext: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenGetKernelTime(handle: miopenHandle_t, time: *mut f32) -> miopenStatus_t;
    pub fn miopenEnableProfiling(handle: miopenHandle_t, enable: bool) -> miopenStatus_t;
    pub fn miopenCreateTensorDescriptor(
        tensorDesc: *mut miopenTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenSet4dTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        n: ::core::ffi::c_int,
        c: ::core::ffi::c_int,
        h: ::core::ffi::c_int,
        w: ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenSetNdTensorDescriptorWithLayout(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        tensorLayout: miopenTensorLayout_t,
        lens: *const ::core::ffi::c_int,
        num_lens: ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenSet4dTensorDescriptorEx(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        n: ::core::ffi::c_int,
        c: ::core::ffi::c_int,
        h: ::core::ffi::c_int,
        w: ::core::ffi::c_int,
        nStride: ::core::ffi::c_int,
        cStride: ::core::ffi::c_int,
        hStride: ::core::ffi::c_int,
        wStride: ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenGet4dTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: *mut miopenDataType_t,
        n: *mut ::core::ffi::c_int,
        c: *mut ::core::ffi::c_int,
        h: *mut ::core::ffi::c_int,
        w: *mut ::core::ffi::c_int,
        nStride: *mut ::core::ffi::c_int,
        cStride: *mut ::core::ffi::c_int,
        hStride: *mut ::core::ffi::c_int,
        wStride: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenSetTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        nbDims: ::core::ffi::c_int,
        dimsA: *const ::core::ffi::c_int,
        stridesA: *const ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenSetTensorDescriptorV2(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: miopenDataType_t,
        nbDims: ::core::ffi::c_int,
        dimsA: *const usize,
        stridesA: *const usize,
    ) -> miopenStatus_t;
    pub fn miopenSetTensorCastType(
        tensorDesc: miopenTensorDescriptor_t,
        cast_type: miopenDataType_t,
    ) -> miopenStatus_t;
    pub fn miopenGetTensorDescriptorSize(
        tensorDesc: miopenTensorDescriptor_t,
        size: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenGetTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
        dataType: *mut miopenDataType_t,
        dimsA: *mut ::core::ffi::c_int,
        stridesA: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenDestroyTensorDescriptor(
        tensorDesc: miopenTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenOpTensor(
        handle: miopenHandle_t,
        tensorOp: miopenTensorOp_t,
        alpha1: *const ::core::ffi::c_void,
        aDesc: miopenTensorDescriptor_t,
        A: *const ::core::ffi::c_void,
        alpha2: *const ::core::ffi::c_void,
        bDesc: miopenTensorDescriptor_t,
        B: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        cDesc: miopenTensorDescriptor_t,
        C: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenSetTensor(
        handle: miopenHandle_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        alpha: *const ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenScaleTensor(
        handle: miopenHandle_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        alpha: *const ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenGetTensorNumBytes(
        tensorDesc: miopenTensorDescriptor_t,
        numBytes: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenTransformTensor(
        handle: miopenHandle_t,
        alpha: *const ::core::ffi::c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenCreateConvolutionDescriptor(
        convDesc: *mut miopenConvolutionDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenInitConvolutionDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        c_mode: miopenConvolutionMode_t,
        pad_h: ::core::ffi::c_int,
        pad_w: ::core::ffi::c_int,
        stride_h: ::core::ffi::c_int,
        stride_w: ::core::ffi::c_int,
        dilation_h: ::core::ffi::c_int,
        dilation_w: ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenInitConvolutionNdDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        spatialDim: ::core::ffi::c_int,
        padA: *const ::core::ffi::c_int,
        strideA: *const ::core::ffi::c_int,
        dilationA: *const ::core::ffi::c_int,
        c_mode: miopenConvolutionMode_t,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionSpatialDim(
        convDesc: miopenConvolutionDescriptor_t,
        spatialDim: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        c_mode: *mut miopenConvolutionMode_t,
        pad_h: *mut ::core::ffi::c_int,
        pad_w: *mut ::core::ffi::c_int,
        stride_h: *mut ::core::ffi::c_int,
        stride_w: *mut ::core::ffi::c_int,
        dilation_h: *mut ::core::ffi::c_int,
        dilation_w: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionNdDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
        requestedSpatialDim: ::core::ffi::c_int,
        spatialDim: *mut ::core::ffi::c_int,
        padA: *mut ::core::ffi::c_int,
        strideA: *mut ::core::ffi::c_int,
        dilationA: *mut ::core::ffi::c_int,
        c_mode: *mut miopenConvolutionMode_t,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionGroupCount(
        convDesc: miopenConvolutionDescriptor_t,
        groupCount: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenSetConvolutionGroupCount(
        convDesc: miopenConvolutionDescriptor_t,
        groupCount: ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionForwardOutputDim(
        convDesc: miopenConvolutionDescriptor_t,
        inputTensorDesc: miopenTensorDescriptor_t,
        filterDesc: miopenTensorDescriptor_t,
        n: *mut ::core::ffi::c_int,
        c: *mut ::core::ffi::c_int,
        h: *mut ::core::ffi::c_int,
        w: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionNdForwardOutputDim(
        convDesc: miopenConvolutionDescriptor_t,
        inputTensorDesc: miopenTensorDescriptor_t,
        filterDesc: miopenTensorDescriptor_t,
        nDim: *mut ::core::ffi::c_int,
        outputTensorDimA: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenDestroyConvolutionDescriptor(
        convDesc: miopenConvolutionDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenSetConvolutionAttribute(
        convDesc: miopenConvolutionDescriptor_t,
        attr: miopenConvolutionAttrib_t,
        value: ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionAttribute(
        convDesc: miopenConvolutionDescriptor_t,
        attr: miopenConvolutionAttrib_t,
        value: *mut ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenSetConvolutionFindMode(
        convDesc: miopenConvolutionDescriptor_t,
        findMode: miopenConvolutionFindMode_t,
    ) -> miopenStatus_t;
    pub fn miopenGetConvolutionFindMode(
        convDesc: miopenConvolutionDescriptor_t,
        findMode: *mut miopenConvolutionFindMode_t,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForwardGetSolutionCount(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        solutionCount: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForwardGetSolution(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        maxSolutionCount: usize,
        solutionCount: *mut usize,
        solutions: *mut miopenConvSolution_t,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForwardGetSolutionWorkspaceSize(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        solution_id: u64,
        workSpaceSize: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForwardCompileSolution(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        solution_id: u64,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForwardImmediate(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        w: *const ::core::ffi::c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        workSpace: *mut ::core::ffi::c_void,
        workSpaceSize: usize,
        solution_id: u64,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForwardGetWorkSpaceSize(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        workSpaceSize: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenFindConvolutionForwardAlgorithm(
        handle: miopenHandle_t,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        wDesc: miopenTensorDescriptor_t,
        w: *const ::core::ffi::c_void,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        requestAlgoCount: ::core::ffi::c_int,
        returnedAlgoCount: *mut ::core::ffi::c_int,
        perfResults: *mut miopenConvAlgoPerf_t,
        workSpace: *mut ::core::ffi::c_void,
        workSpaceSize: usize,
        exhaustiveSearch: bool,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForward(
        handle: miopenHandle_t,
        alpha: *const ::core::ffi::c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        wDesc: miopenTensorDescriptor_t,
        w: *const ::core::ffi::c_void,
        convDesc: miopenConvolutionDescriptor_t,
        algo: miopenConvFwdAlgorithm_t,
        beta: *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        workSpace: *mut ::core::ffi::c_void,
        workSpaceSize: usize,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionForwardBias(
        handle: miopenHandle_t,
        alpha: *const ::core::ffi::c_void,
        bDesc: miopenTensorDescriptor_t,
        b: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenLayerNormForward(
        handle: miopenHandle_t,
        mode: miopenNormMode_t,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        weightDesc: miopenTensorDescriptor_t,
        weight: *const ::core::ffi::c_void,
        biasDesc: miopenTensorDescriptor_t,
        bias: *const ::core::ffi::c_void,
        epsilon: f32,
        normalized_dim: i32,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        meanDesc: miopenTensorDescriptor_t,
        mean: *mut ::core::ffi::c_void,
        rstdDesc: miopenTensorDescriptor_t,
        rstd: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenCatForward(
        handle: miopenHandle_t,
        xCount: i32,
        xDescs: *const miopenTensorDescriptor_t,
        xs: *const *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        dim: i32,
    ) -> miopenStatus_t;
    pub fn miopenCreateActivationDescriptor(
        activDesc: *mut miopenActivationDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenSetActivationDescriptor(
        activDesc: miopenActivationDescriptor_t,
        mode: miopenActivationMode_t,
        activAlpha: f64,
        activBeta: f64,
        activGamma: f64,
    ) -> miopenStatus_t;
    pub fn miopenGetActivationDescriptor(
        activDesc: miopenActivationDescriptor_t,
        mode: *mut miopenActivationMode_t,
        activAlpha: *mut f64,
        activBeta: *mut f64,
        activGamma: *mut f64,
    ) -> miopenStatus_t;
    pub fn miopenActivationForward(
        handle: miopenHandle_t,
        activDesc: miopenActivationDescriptor_t,
        alpha: *const ::core::ffi::c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenDestroyActivationDescriptor(
        activDesc: miopenActivationDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenGLUForward(
        handle: miopenHandle_t,
        inputDesc: miopenTensorDescriptor_t,
        input: *const ::core::ffi::c_void,
        outputDesc: miopenTensorDescriptor_t,
        output: *mut ::core::ffi::c_void,
        dim: u32,
    ) -> miopenStatus_t;
    pub fn miopenSoftmaxForward(
        handle: miopenHandle_t,
        alpha: *const ::core::ffi::c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenSoftmaxForward_V2(
        handle: miopenHandle_t,
        alpha: *const ::core::ffi::c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        algorithm: miopenSoftmaxAlgorithm_t,
        mode: miopenSoftmaxMode_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateFusionPlan(
        fusePlanDesc: *mut miopenFusionPlanDescriptor_t,
        fuseDirection: miopenFusionDirection_t,
        inputDesc: miopenTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenDestroyFusionPlan(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenCompileFusionPlan(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenFusionPlanGetWorkSpaceSize(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        workSpaceSize: *mut usize,
        algo: miopenConvFwdAlgorithm_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateOpConvForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        convOp: *mut miopenFusionOpDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        wDesc: miopenTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateOpActivationForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        activFwdOp: *mut miopenFusionOpDescriptor_t,
        mode: miopenActivationMode_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateOpBiasForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        biasOp: *mut miopenFusionOpDescriptor_t,
        bDesc: miopenTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateOperatorArgs(args: *mut miopenOperatorArgs_t) -> miopenStatus_t;
    pub fn miopenDestroyOperatorArgs(args: miopenOperatorArgs_t) -> miopenStatus_t;
    pub fn miopenSetOpArgsConvForward(
        args: miopenOperatorArgs_t,
        convOp: miopenFusionOpDescriptor_t,
        alpha: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        w: *const ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenSetOpArgsActivForward(
        args: miopenOperatorArgs_t,
        activFwdOp: miopenFusionOpDescriptor_t,
        alpha: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        activAlpha: f64,
        activBeta: f64,
        activGamma: f64,
    ) -> miopenStatus_t;
    pub fn miopenSetOpArgsBiasForward(
        args: miopenOperatorArgs_t,
        biasOp: miopenFusionOpDescriptor_t,
        alpha: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        bias: *const ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenExecuteFusionPlan(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        inputDesc: miopenTensorDescriptor_t,
        input: *const ::core::ffi::c_void,
        outputDesc: miopenTensorDescriptor_t,
        output: *mut ::core::ffi::c_void,
        args: miopenOperatorArgs_t,
    ) -> miopenStatus_t;
    pub fn miopenExecuteFusionPlan_v2(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        inputDesc: miopenTensorDescriptor_t,
        input: *const ::core::ffi::c_void,
        outputDesc: miopenTensorDescriptor_t,
        output: *mut ::core::ffi::c_void,
        args: miopenOperatorArgs_t,
        workspace: *mut ::core::ffi::c_void,
        workspaceSize: usize,
    ) -> miopenStatus_t;
    pub fn miopenConvolutionBiasActivationForward(
        handle: miopenHandle_t,
        alpha1: *const ::core::ffi::c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        wDesc: miopenTensorDescriptor_t,
        w: *const ::core::ffi::c_void,
        convDesc: miopenConvolutionDescriptor_t,
        algo: miopenConvFwdAlgorithm_t,
        workspace: *mut ::core::ffi::c_void,
        workspaceSizeInBytes: usize,
        alpha2: *const ::core::ffi::c_void,
        zDesc: miopenTensorDescriptor_t,
        z: *const ::core::ffi::c_void,
        biasDesc: miopenTensorDescriptor_t,
        bias: *const ::core::ffi::c_void,
        activationDesc: miopenActivationDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenCreateReduceTensorDescriptor(
        reduceTensorDesc: *mut miopenReduceTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenDestroyReduceTensorDescriptor(
        reduceTensorDesc: miopenReduceTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenSetReduceTensorDescriptor(
        reduceTensorDesc: miopenReduceTensorDescriptor_t,
        reduceTensorOp: miopenReduceTensorOp_t,
        reduceTensorCompType: miopenDataType_t,
        reduceTensorNanOpt: miopenNanPropagation_t,
        reduceTensorIndices: miopenReduceTensorIndices_t,
        reduceTensorIndicesType: miopenIndicesType_t,
    ) -> miopenStatus_t;
    pub fn miopenGetReduceTensorDescriptor(
        reduceTensorDesc: miopenReduceTensorDescriptor_t,
        reduceTensorOp: *mut miopenReduceTensorOp_t,
        reduceTensorCompType: *mut miopenDataType_t,
        reduceTensorNanOpt: *mut miopenNanPropagation_t,
        reduceTensorIndices: *mut miopenReduceTensorIndices_t,
        reduceTensorIndicesType: *mut miopenIndicesType_t,
    ) -> miopenStatus_t;
    pub fn miopenGetReductionIndicesSize(
        handle: miopenHandle_t,
        reduceTensorDesc: miopenReduceTensorDescriptor_t,
        aDesc: miopenTensorDescriptor_t,
        cDesc: miopenTensorDescriptor_t,
        sizeInBytes: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenGetReductionWorkspaceSize(
        handle: miopenHandle_t,
        reduceTensorDesc: miopenReduceTensorDescriptor_t,
        aDesc: miopenTensorDescriptor_t,
        cDesc: miopenTensorDescriptor_t,
        sizeInBytes: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenReduceTensor(
        handle: miopenHandle_t,
        reduceTensorDesc: miopenReduceTensorDescriptor_t,
        indices: *mut ::core::ffi::c_void,
        indicesSizeInBytes: usize,
        workspace: *mut ::core::ffi::c_void,
        workspaceSizeInBytes: usize,
        alpha: *const ::core::ffi::c_void,
        aDesc: miopenTensorDescriptor_t,
        A: *const ::core::ffi::c_void,
        beta: *const ::core::ffi::c_void,
        cDesc: miopenTensorDescriptor_t,
        C: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenCreateConvProblem(
        problem: *mut miopenProblem_t,
        operatorDesc: miopenConvolutionDescriptor_t,
        direction: miopenProblemDirection_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateMhaProblem(
        problem: *mut miopenProblem_t,
        operatorDesc: miopenMhaDescriptor_t,
        direction: miopenProblemDirection_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateMhaDescriptor(
        mhaDesc: *mut miopenMhaDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenSetMhaDescriptor(
        mhaDesc: miopenMhaDescriptor_t,
        scale: f32,
    ) -> miopenStatus_t;
    pub fn miopenGetMhaDescriptor(
        mhaDesc: miopenMhaDescriptor_t,
        scale: *mut f32,
    ) -> miopenStatus_t;
    pub fn miopenCreateSoftmaxDescriptor(
        softmaxDesc: *mut miopenSoftmaxDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenSetSoftmaxDescriptor(
        softmaxDesc: miopenSoftmaxDescriptor_t,
        alpha: f32,
        beta: f32,
        algorithm: miopenSoftmaxAlgorithm_t,
        mode: miopenSoftmaxMode_t,
    ) -> miopenStatus_t;
    pub fn miopenGetSoftmaxDescriptor(
        softmaxDesc: miopenSoftmaxDescriptor_t,
        alpha: *mut f32,
        beta: *mut f32,
        algorithm: *mut miopenSoftmaxAlgorithm_t,
        mode: *mut miopenSoftmaxMode_t,
    ) -> miopenStatus_t;
    pub fn miopenDestroyProblem(problem: miopenProblem_t) -> miopenStatus_t;
    pub fn miopenSetProblemTensorDescriptor(
        problem: miopenProblem_t,
        id: miopenTensorArgumentId_t,
        descriptor: miopenTensorDescriptor_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateFindOptions(options: *mut miopenFindOptions_t) -> miopenStatus_t;
    pub fn miopenDestroyFindOptions(options: miopenFindOptions_t) -> miopenStatus_t;
    pub fn miopenSetFindOptionTuning(
        options: miopenFindOptions_t,
        value: ::core::ffi::c_int,
    ) -> miopenStatus_t;
    pub fn miopenSetFindOptionResultsOrder(
        options: miopenFindOptions_t,
        value: miopenFindResultsOrder_t,
    ) -> miopenStatus_t;
    pub fn miopenSetFindOptionWorkspaceLimit(
        options: miopenFindOptions_t,
        value: usize,
    ) -> miopenStatus_t;
    pub fn miopenSetFindOptionPreallocatedWorkspace(
        options: miopenFindOptions_t,
        buffer: *mut ::core::ffi::c_void,
        size: usize,
    ) -> miopenStatus_t;
    pub fn miopenSetFindOptionPreallocatedTensor(
        options: miopenFindOptions_t,
        id: miopenTensorArgumentId_t,
        buffer: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenSetFindOptionAttachBinaries(
        options: miopenFindOptions_t,
        attach: ::core::ffi::c_uint,
    ) -> miopenStatus_t;
    pub fn miopenFindSolutions(
        handle: miopenHandle_t,
        problem: miopenProblem_t,
        options: miopenFindOptions_t,
        solutions: *mut miopenSolution_t,
        numSolutions: *mut usize,
        maxSolutions: usize,
    ) -> miopenStatus_t;
    pub fn miopenRunSolution(
        handle: miopenHandle_t,
        solution: miopenSolution_t,
        nInputs: usize,
        tensors: *const miopenTensorArgument_t,
        workspace: *mut ::core::ffi::c_void,
        workspaceSize: usize,
    ) -> miopenStatus_t;
    pub fn miopenDestroySolution(solution: miopenSolution_t) -> miopenStatus_t;
    pub fn miopenLoadSolution(
        solution: *mut miopenSolution_t,
        data: *const ::core::ffi::c_char,
        size: usize,
    ) -> miopenStatus_t;
    pub fn miopenSaveSolution(
        solution: miopenSolution_t,
        data: *mut ::core::ffi::c_char,
    ) -> miopenStatus_t;
    pub fn miopenGetSolutionSize(
        solution: miopenSolution_t,
        size: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenGetSolutionWorkspaceSize(
        solution: miopenSolution_t,
        workspaceSize: *mut usize,
    ) -> miopenStatus_t;
    pub fn miopenGetSolutionTime(
        solution: miopenSolution_t,
        time: *mut f32,
    ) -> miopenStatus_t;
    pub fn miopenGetSolutionSolverId(
        solution: miopenSolution_t,
        solverId: *mut u64,
    ) -> miopenStatus_t;
    pub fn miopenGetSolverIdConvAlgorithm(
        solverId: u64,
        result: *mut miopenConvAlgorithm_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateActivationProblem(
        problem: *mut miopenProblem_t,
        operatorDesc: miopenActivationDescriptor_t,
        direction: miopenProblemDirection_t,
    ) -> miopenStatus_t;
    pub fn miopenFuseProblems(
        problem1: miopenProblem_t,
        problem2: miopenProblem_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateBiasProblem(
        problem: *mut miopenProblem_t,
        direction: miopenProblemDirection_t,
    ) -> miopenStatus_t;
    pub fn miopenCreateSoftmaxProblem(
        problem: *mut miopenProblem_t,
        operatorDesc: miopenSoftmaxDescriptor_t,
        direction: miopenProblemDirection_t,
    ) -> miopenStatus_t;
    pub fn miopenAddLayerNormForward(
        handle: miopenHandle_t,
        mode: miopenNormMode_t,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        x2Desc: miopenTensorDescriptor_t,
        x2: *const ::core::ffi::c_void,
        weightDesc: miopenTensorDescriptor_t,
        weight: *const ::core::ffi::c_void,
        biasDesc: miopenTensorDescriptor_t,
        bias: *const ::core::ffi::c_void,
        epsilon: f32,
        normalized_dim: i32,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        meanDesc: miopenTensorDescriptor_t,
        mean: *mut ::core::ffi::c_void,
        rstdDesc: miopenTensorDescriptor_t,
        rstd: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenT5LayerNormForward(
        handle: miopenHandle_t,
        mode: miopenNormMode_t,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        weightDesc: miopenTensorDescriptor_t,
        weight: *const ::core::ffi::c_void,
        epsilon: f32,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
        rstdDesc: miopenTensorDescriptor_t,
        rstd: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenRoPEForward(
        handle: miopenHandle_t,
        xDesc: miopenTensorDescriptor_t,
        x: *const ::core::ffi::c_void,
        cosDesc: miopenTensorDescriptor_t,
        cos: *const ::core::ffi::c_void,
        sinDesc: miopenTensorDescriptor_t,
        sin: *const ::core::ffi::c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut ::core::ffi::c_void,
    ) -> miopenStatus_t;
    pub fn miopenSetTuningPolicy(
        handle: miopenHandle_t,
        newValue: miopenTuningPolicy_t,
    ) -> miopenStatus_t;
    pub fn miopenGetTuningPolicy(
        handle: miopenHandle_t,
        value: *mut miopenTuningPolicy_t,
    ) -> miopenStatus_t;
}
crate::status::status! {
    miopenStatus_t, success: miopenStatusSuccess;
    miopenStatusSuccess,
    miopenStatusNotInitialized,
    miopenStatusInvalidValue,
    miopenStatusBadParm,
    miopenStatusAllocFailed,
    miopenStatusInternalError,
    miopenStatusNotImplemented,
    miopenStatusUnknownError,
    miopenStatusUnsupportedOp,
    miopenStatusGpuOperationsSkipped,
    miopenStatusVersionMismatch,
}
