//! Softmax, activation, and arithmetic on tensors.

use std::ffi::c_void;
use std::ptr;

use cudarc::cudnn::sys::{
    cudnnActivationDescriptor_t, cudnnActivationMode_t as Cudnn, cudnnDataType_t, cudnnNanPropagation_t,
    cudnnOpTensorDescriptor_t,
};
use hip_provider::export;
use hip_provider::miopen::{Activation, activation, tensor};
use hipvit_sys::miopen::{
    miopenActivationDescriptor_t, miopenActivationMode_t, miopenDataType_t, miopenHandle_t,
    miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t, miopenStatus_t, miopenTensorDescriptor_t,
    miopenTensorOp_t,
};

use super::tensor::Described;
use super::{cudnn, handle, on_device};

const PROPAGATE: u32 = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN as u32;

/// cuDNN's function and its coefficient, if it has the same function.
fn cudnn_function(activation: &Activation) -> Result<(u32, f64), miopenStatus_t> {
    use miopenActivationMode_t as Mode;
    Ok(match activation.mode {
        Mode::miopenActivationLOGISTIC => (Cudnn::CUDNN_ACTIVATION_SIGMOID as u32, 0.0),
        // MIOpen's is beta·tanh(alpha·x).
        Mode::miopenActivationTANH if (activation.alpha, activation.beta) == (1.0, 1.0) => {
            (Cudnn::CUDNN_ACTIVATION_TANH as u32, 0.0)
        }
        Mode::miopenActivationRELU => (Cudnn::CUDNN_ACTIVATION_RELU as u32, 0.0),
        Mode::miopenActivationCLIPPEDRELU => (Cudnn::CUDNN_ACTIVATION_CLIPPED_RELU as u32, activation.alpha),
        Mode::miopenActivationELU => (Cudnn::CUDNN_ACTIVATION_ELU as u32, activation.alpha),
        _ => return Err(miopenStatus_t::miopenStatusUnsupportedOp),
    })
}

/// cuDNN's activation descriptor, destroyed on drop.
struct DescribedActivation(cudnnActivationDescriptor_t);

impl Drop for DescribedActivation {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing else has it. Whether that worked changes nothing.
        let _ = unsafe { cudnn!(cudnnDestroyActivationDescriptor(self.0)) };
    }
}

/// cuDNN's tensor-operation descriptor, destroyed on drop.
struct Operation(cudnnOpTensorDescriptor_t);

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing else has it. Whether that worked changes nothing.
        let _ = unsafe { cudnn!(cudnnDestroyOpTensorDescriptor(self.0)) };
    }
}

export! { miopen, miopenStatus_t, on_device;
    /// Supported: logistic, tanh without factors, ReLU, clipped ReLU, ELU.
    fn miopenActivationForward(
        of: miopenHandle_t, with: miopenActivationDescriptor_t, alpha: *const c_void,
        x_desc: miopenTensorDescriptor_t, x: *const c_void, beta: *const c_void, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void,
    ) {
        let (mode, coefficient) = cudnn_function(&activation(with)?)?;
        let (input, output) = (Described::of(x_desc)?, Described::of(y_desc)?);
        let mut descriptor = ptr::null_mut();
        cudnn!(cudnnCreateActivationDescriptor(&mut descriptor))?;
        let described = DescribedActivation(descriptor);
        cudnn!(cudnnSetActivationDescriptor(described.0, mode, PROPAGATE, coefficient))?;
        cudnn!(cudnnActivationForward(handle(of)?, described.0, alpha, input.0, x, beta, output.0, y))
    }

    /// Over the channels, with the maximum subtracted first, as in MIOpen's first version.
    fn miopenSoftmaxForward(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (input, output) = (Described::of(x_desc)?, Described::of(y_desc)?);
        cudnn!(cudnnSoftmaxForward(
            handle(of)?, miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_ACCURATE.0,
            miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL.0, alpha, input.0, x, beta, output.0, y,
        ))
    }

    /// Algorithms and modes have cuDNN's values.
    fn miopenSoftmaxForward_V2(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void, algorithm: miopenSoftmaxAlgorithm_t,
        mode: miopenSoftmaxMode_t,
    ) {
        let (input, output) = (Described::of(x_desc)?, Described::of(y_desc)?);
        cudnn!(cudnnSoftmaxForward(handle(of)?, algorithm.0, mode.0, alpha, input.0, x, beta, output.0, y))
    }

    /// Operations have cuDNN's values.
    fn miopenOpTensor(
        of: miopenHandle_t, operation: miopenTensorOp_t, alpha1: *const c_void, a_desc: miopenTensorDescriptor_t,
        a: *const c_void, alpha2: *const c_void, b_desc: miopenTensorDescriptor_t, b: *const c_void,
        beta: *const c_void, c_desc: miopenTensorDescriptor_t, c: *mut c_void,
    ) {
        let result = tensor(c_desc)?;
        let compute = match result.kind {
            miopenDataType_t::miopenDouble => cudnnDataType_t::CUDNN_DATA_DOUBLE,
            _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
        };
        let (first, second, result) = (Described::of(a_desc)?, Described::of(b_desc)?, Described::new(&result)?);
        let mut descriptor = ptr::null_mut();
        cudnn!(cudnnCreateOpTensorDescriptor(&mut descriptor))?;
        let described = Operation(descriptor);
        cudnn!(cudnnSetOpTensorDescriptor(described.0, operation.0, compute as u32, PROPAGATE))?;
        cudnn!(cudnnOpTensor(
            handle(of)?, described.0, alpha1, first.0, a, alpha2, second.0, b, beta, result.0, c,
        ))
    }

    fn miopenSetTensor(of: miopenHandle_t, desc: miopenTensorDescriptor_t, y: *mut c_void, value: *const c_void) {
        let described = Described::of(desc)?;
        cudnn!(cudnnSetTensor(handle(of)?, described.0, y, value))
    }

    fn miopenScaleTensor(of: miopenHandle_t, desc: miopenTensorDescriptor_t, y: *mut c_void, factor: *const c_void) {
        let described = Described::of(desc)?;
        cudnn!(cudnnScaleTensor(handle(of)?, described.0, y, factor))
    }

    fn miopenTransformTensor(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (input, output) = (Described::of(x_desc)?, Described::of(y_desc)?);
        cudnn!(cudnnTransformTensor(handle(of)?, alpha, input.0, x, beta, output.0, y))
    }
}
