//! Softmax, activation, and arithmetic on tensors.

use std::ffi::c_void;
use std::ptr;

use cudarc::cudnn::sys::{
    cudnnActivationDescriptor_t, cudnnActivationMode_t as Cudnn, cudnnDataType_t, cudnnNanPropagation_t,
    cudnnOpTensorDescriptor_t,
};
use hipvit_sys::miopen::{
    miopenActivationDescriptor_t, miopenActivationMode_t, miopenDataType_t, miopenHandle_t,
    miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t, miopenStatus_t, miopenTensorDescriptor_t,
    miopenTensorOp_t,
};

use super::tensor::tensor;
use super::{cudnn, handle, on_device, run};
use hipvit_sys::export;

const BAD: miopenStatus_t = miopenStatus_t::miopenStatusBadParm;
const PROPAGATE: u32 = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN as u32;

/// The target of a `miopenActivationDescriptor_t`.
#[derive(Debug, Clone, PartialEq)]
struct Activation {
    mode: miopenActivationMode_t,
    alpha: f64,
    beta: f64,
    gamma: f64,
}

/// The activation of a descriptor.
///
/// # Safety
/// The descriptor is null, or was made by `miopenCreateActivationDescriptor` and not destroyed, and no other thread
/// changes it.
unsafe fn activation<'a>(of: miopenActivationDescriptor_t) -> Result<&'a mut Activation, miopenStatus_t> {
    // SAFETY: as the caller says.
    unsafe { of.cast::<Activation>().as_mut() }.ok_or(BAD)
}

impl Activation {
    /// cuDNN's function and its coefficient, if it has the same function.
    fn of_cudnn(&self) -> Result<(u32, f64), miopenStatus_t> {
        use miopenActivationMode_t as Mode;
        Ok(match self.mode {
            Mode::miopenActivationLOGISTIC => (Cudnn::CUDNN_ACTIVATION_SIGMOID as u32, 0.0),
            // MIOpen's is beta·tanh(alpha·x).
            Mode::miopenActivationTANH if (self.alpha, self.beta) == (1.0, 1.0) => {
                (Cudnn::CUDNN_ACTIVATION_TANH as u32, 0.0)
            }
            Mode::miopenActivationRELU => (Cudnn::CUDNN_ACTIVATION_RELU as u32, 0.0),
            Mode::miopenActivationCLIPPEDRELU => (Cudnn::CUDNN_ACTIVATION_CLIPPED_RELU as u32, self.alpha),
            Mode::miopenActivationELU => (Cudnn::CUDNN_ACTIVATION_ELU as u32, self.alpha),
            _ => return Err(miopenStatus_t::miopenStatusUnsupportedOp),
        })
    }
}

/// cuDNN's activation descriptor, destroyed on drop.
struct Described(cudnnActivationDescriptor_t);

impl Drop for Described {
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

export! { miopen, miopenStatus_t, run;
    fn miopenCreateActivationDescriptor(to: *mut miopenActivationDescriptor_t) {
        let none =
            Activation { mode: miopenActivationMode_t::miopenActivationPASTHRU, alpha: 0.0, beta: 0.0, gamma: 0.0 };
        to.write(Box::into_raw(Box::new(none)).cast());
        Ok(())
    }

    fn miopenDestroyActivationDescriptor(of: miopenActivationDescriptor_t) {
        activation(of)?;
        // It was made by `Box::into_raw` above.
        drop(Box::from_raw(of.cast::<Activation>()));
        Ok(())
    }

    fn miopenSetActivationDescriptor(
        of: miopenActivationDescriptor_t, mode: miopenActivationMode_t, alpha: f64, beta: f64, gamma: f64,
    ) {
        *activation(of)? = Activation { mode, alpha, beta, gamma };
        Ok(())
    }

    fn miopenGetActivationDescriptor(
        of: miopenActivationDescriptor_t, mode: *mut miopenActivationMode_t, alpha: *mut f64, beta: *mut f64,
        gamma: *mut f64,
    ) {
        let activation = activation(of)?;
        mode.write(activation.mode);
        alpha.write(activation.alpha);
        beta.write(activation.beta);
        gamma.write(activation.gamma);
        Ok(())
    }
}

export! { miopen, miopenStatus_t, on_device;
    /// Supported: logistic, tanh without factors, ReLU, clipped ReLU, ELU.
    fn miopenActivationForward(
        of: miopenHandle_t, with: miopenActivationDescriptor_t, alpha: *const c_void,
        x_desc: miopenTensorDescriptor_t, x: *const c_void, beta: *const c_void, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void,
    ) {
        let (mode, coefficient) = activation(with)?.of_cudnn()?;
        let (input, output) = (tensor(x_desc)?.described()?, tensor(y_desc)?.described()?);
        let mut descriptor = ptr::null_mut();
        cudnn!(cudnnCreateActivationDescriptor(&mut descriptor))?;
        let described = Described(descriptor);
        cudnn!(cudnnSetActivationDescriptor(described.0, mode, PROPAGATE, coefficient))?;
        cudnn!(cudnnActivationForward(handle(of)?, described.0, alpha, input.0, x, beta, output.0, y))
    }

    /// Over the channels, with the maximum subtracted first, as in MIOpen's first version.
    fn miopenSoftmaxForward(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (input, output) = (tensor(x_desc)?.described()?, tensor(y_desc)?.described()?);
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
        let (input, output) = (tensor(x_desc)?.described()?, tensor(y_desc)?.described()?);
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
        let (first, second, result) = (tensor(a_desc)?.described()?, tensor(b_desc)?.described()?, result.described()?);
        let mut descriptor = ptr::null_mut();
        cudnn!(cudnnCreateOpTensorDescriptor(&mut descriptor))?;
        let described = Operation(descriptor);
        cudnn!(cudnnSetOpTensorDescriptor(described.0, operation.0, compute as u32, PROPAGATE))?;
        cudnn!(cudnnOpTensor(
            handle(of)?, described.0, alpha1, first.0, a, alpha2, second.0, b, beta, result.0, c,
        ))
    }

    fn miopenSetTensor(of: miopenHandle_t, desc: miopenTensorDescriptor_t, y: *mut c_void, value: *const c_void) {
        let described = tensor(desc)?.described()?;
        cudnn!(cudnnSetTensor(handle(of)?, described.0, y, value))
    }

    fn miopenScaleTensor(of: miopenHandle_t, desc: miopenTensorDescriptor_t, y: *mut c_void, factor: *const c_void) {
        let described = tensor(desc)?.described()?;
        cudnn!(cudnnScaleTensor(handle(of)?, described.0, y, factor))
    }

    fn miopenTransformTensor(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (input, output) = (tensor(x_desc)?.described()?, tensor(y_desc)?.described()?);
        cudnn!(cudnnTransformTensor(handle(of)?, alpha, input.0, x, beta, output.0, y))
    }
}
