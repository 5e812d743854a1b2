//! cuDNN's descriptors of tensors.

use std::ptr;

use cudarc::cudnn::sys::{
    cudnnDataType_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorFormat_t,
};
use hip_provider::miopen::{BAD_PARAMETER, TensorDescriptor, UNSUPPORTED, tensor};
use hipvit_sys::miopen::{miopenDataType_t, miopenStatus_t, miopenTensorDescriptor_t};

use super::cudnn;

/// cuDNN's tensor descriptor, destroyed on drop.
pub(super) struct Described(pub(super) cudnnTensorDescriptor_t);

impl Described {
    /// Describes MIOpen's tensor to cuDNN, which needs at least four dimensions.
    pub(super) fn new(tensor: &TensorDescriptor) -> Result<Self, miopenStatus_t> {
        let (mut lengths, mut strides) = (ints(&tensor.lengths)?, ints(&tensor.strides)?);
        while lengths.len() < 4 {
            lengths.push(1);
            strides.push(1);
        }
        let mut descriptor = ptr::null_mut();
        // SAFETY: `descriptor` is a handle that the call may write.
        unsafe { cudnn!(cudnnCreateTensorDescriptor(&mut descriptor))? };
        let described = Self(descriptor);
        let (kind, count) = (datatype(tensor.kind)?, lengths.len() as i32);
        // SAFETY: the arrays have `count` numbers each.
        unsafe {
            cudnn!(cudnnSetTensorNdDescriptor(
                descriptor,
                kind,
                count,
                lengths.as_ptr(),
                strides.as_ptr()
            ))?;
        }
        Ok(described)
    }

    /// Describes the tensor of a handle.
    pub(super) fn of(handle: miopenTensorDescriptor_t) -> Result<Self, miopenStatus_t> {
        Self::new(&tensor(handle)?)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing else has it. A failure changes nothing.
        let _ = unsafe { cudnn!(cudnnDestroyTensorDescriptor(self.0)) };
    }
}

/// cuDNN's filter descriptor, destroyed on drop.
pub(super) struct DescribedFilter(pub(super) cudnnFilterDescriptor_t);

impl DescribedFilter {
    /// Describes a convolution's filter, which must have no gaps.
    pub(super) fn new(tensor: &TensorDescriptor) -> Result<Self, miopenStatus_t> {
        let format = if tensor.is_packed() {
            cudnnTensorFormat_t::CUDNN_TENSOR_NCHW
        } else if tensor.is_channels_last() {
            cudnnTensorFormat_t::CUDNN_TENSOR_NHWC
        } else {
            return Err(UNSUPPORTED);
        };
        let mut descriptor = ptr::null_mut();
        // SAFETY: `descriptor` is a handle that the call may write.
        unsafe { cudnn!(cudnnCreateFilterDescriptor(&mut descriptor))? };
        let described = Self(descriptor);
        let lengths = ints(&tensor.lengths)?;
        let (kind, count) = (datatype(tensor.kind)?, lengths.len() as i32);
        // SAFETY: the array has `count` numbers.
        unsafe {
            cudnn!(cudnnSetFilterNdDescriptor(
                descriptor,
                kind,
                format as u32,
                count,
                lengths.as_ptr()
            ))?;
        }
        Ok(described)
    }
}

impl Drop for DescribedFilter {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing else has it. A failure changes nothing.
        let _ = unsafe { cudnn!(cudnnDestroyFilterDescriptor(self.0)) };
    }
}

/// Converts sizes to C's `int`.
pub(super) fn ints(values: &[usize]) -> Result<Vec<i32>, miopenStatus_t> {
    let int = |value: &usize| i32::try_from(*value).map_err(|_| BAD_PARAMETER);
    values.iter().map(int).collect()
}

/// cuDNN's value for an element type.
fn datatype(kind: miopenDataType_t) -> Result<u32, miopenStatus_t> {
    let kind = match kind {
        miopenDataType_t::miopenHalf => cudnnDataType_t::CUDNN_DATA_HALF,
        miopenDataType_t::miopenFloat => cudnnDataType_t::CUDNN_DATA_FLOAT,
        miopenDataType_t::miopenInt32 => cudnnDataType_t::CUDNN_DATA_INT32,
        miopenDataType_t::miopenInt8 => cudnnDataType_t::CUDNN_DATA_INT8,
        miopenDataType_t::miopenBFloat16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        miopenDataType_t::miopenDouble => cudnnDataType_t::CUDNN_DATA_DOUBLE,
        miopenDataType_t::miopenInt64 => cudnnDataType_t::CUDNN_DATA_INT64,
        _ => return Err(UNSUPPORTED),
    };
    Ok(kind as u32)
}
