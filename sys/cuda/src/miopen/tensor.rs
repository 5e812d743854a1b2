//! Tensor descriptors.

use std::ptr;

use cudarc::cudnn::sys::{
    cudnnDataType_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorFormat_t,
};
use hipvit_sys::miopen::{miopenDataType_t, miopenStatus_t, miopenTensorDescriptor_t, miopenTensorLayout_t};

use super::{cudnn, run};
use hipvit_sys::export;

const BAD: miopenStatus_t = miopenStatus_t::miopenStatusBadParm;

/// The target of a `miopenTensorDescriptor_t`: lengths in the order N, C, then spatial, and strides in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) kind: miopenDataType_t,
    pub(super) lengths: Vec<i32>,
    strides: Vec<i32>,
}

impl Tensor {
    fn new(kind: miopenDataType_t, lengths: Vec<i32>, strides: Vec<i32>) -> Result<Self, miopenStatus_t> {
        if lengths.is_empty() || lengths.iter().chain(&strides).any(|value| *value <= 0) {
            return Err(BAD);
        }
        Ok(Self {
            kind,
            lengths,
            strides,
        })
    }

    /// Packed strides for these lengths, with the dimensions in `order` in memory, slowest first.
    fn packed(
        lengths: &[i32],
        order: impl DoubleEndedIterator<Item = usize>,
    ) -> Result<Vec<i32>, miopenStatus_t> {
        let mut strides = vec![1; lengths.len()];
        let mut stride = 1_i32;
        for dimension in order.rev() {
            strides[dimension] = stride;
            stride = stride.checked_mul(lengths[dimension]).ok_or(BAD)?;
        }
        Ok(strides)
    }

    fn channels_first(lengths: &[i32]) -> Result<Vec<i32>, miopenStatus_t> {
        Self::packed(lengths, 0..lengths.len())
    }

    fn channels_last(lengths: &[i32]) -> Result<Vec<i32>, miopenStatus_t> {
        let order: Vec<_> = [0].into_iter().chain(2..lengths.len()).chain([1]).collect();
        if lengths.len() < 3 {
            Err(BAD)
        } else {
            Self::packed(lengths, order.into_iter())
        }
    }

    /// Bytes from the first element to the last.
    fn bytes(&self) -> Result<usize, miopenStatus_t> {
        let last: i64 = self
            .lengths
            .iter()
            .zip(&self.strides)
            .map(|(length, stride)| i64::from(length - 1) * i64::from(*stride))
            .sum();
        let size = match self.kind {
            miopenDataType_t::miopenDouble | miopenDataType_t::miopenInt64 => 8,
            miopenDataType_t::miopenFloat | miopenDataType_t::miopenInt32 => 4,
            miopenDataType_t::miopenHalf | miopenDataType_t::miopenBFloat16 => 2,
            _ => 1,
        };
        usize::try_from(last + 1)
            .map(|count| count * size)
            .map_err(|_| BAD)
    }

    /// cuDNN's descriptor of it. cuDNN needs at least four dimensions.
    pub(super) fn described(&self) -> Result<Described, miopenStatus_t> {
        let (mut lengths, mut strides) = (self.lengths.clone(), self.strides.clone());
        while lengths.len() < 4 {
            lengths.push(1);
            strides.push(1);
        }
        let mut descriptor = ptr::null_mut();
        // SAFETY: `descriptor` is a handle that the call may write.
        unsafe { cudnn!(cudnnCreateTensorDescriptor(&mut descriptor))? };
        let described = Described(descriptor);
        let (kind, count) = (datatype(self.kind)?, lengths.len() as i32);
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

    /// cuDNN's descriptor of it as a convolution's filter, which must be packed.
    pub(super) fn described_as_filter(&self) -> Result<DescribedFilter, miopenStatus_t> {
        let format = if self.strides == Self::channels_first(&self.lengths)? {
            cudnnTensorFormat_t::CUDNN_TENSOR_NCHW
        } else if self.strides == Self::channels_last(&self.lengths)? {
            cudnnTensorFormat_t::CUDNN_TENSOR_NHWC
        } else {
            return Err(miopenStatus_t::miopenStatusUnsupportedOp);
        };
        let mut descriptor = ptr::null_mut();
        // SAFETY: `descriptor` is a handle that the call may write.
        unsafe { cudnn!(cudnnCreateFilterDescriptor(&mut descriptor))? };
        let described = DescribedFilter(descriptor);
        let (kind, count) = (datatype(self.kind)?, self.lengths.len() as i32);
        // SAFETY: the array has `count` numbers.
        unsafe {
            cudnn!(cudnnSetFilterNdDescriptor(
                descriptor,
                kind,
                format as u32,
                count,
                self.lengths.as_ptr()
            ))?;
        }
        Ok(described)
    }
}

/// cuDNN's tensor descriptor, destroyed on drop.
pub(super) struct Described(pub(super) cudnnTensorDescriptor_t);

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing else has it. Whether that worked changes nothing.
        let _ = unsafe { cudnn!(cudnnDestroyTensorDescriptor(self.0)) };
    }
}

/// cuDNN's filter descriptor, destroyed on drop.
pub(super) struct DescribedFilter(pub(super) cudnnFilterDescriptor_t);

impl Drop for DescribedFilter {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing else has it. Whether that worked changes nothing.
        let _ = unsafe { cudnn!(cudnnDestroyFilterDescriptor(self.0)) };
    }
}

/// cuDNN's value for an element type.
pub(super) fn datatype(kind: miopenDataType_t) -> Result<u32, miopenStatus_t> {
    let kind = match kind {
        miopenDataType_t::miopenHalf => cudnnDataType_t::CUDNN_DATA_HALF,
        miopenDataType_t::miopenFloat => cudnnDataType_t::CUDNN_DATA_FLOAT,
        miopenDataType_t::miopenInt32 => cudnnDataType_t::CUDNN_DATA_INT32,
        miopenDataType_t::miopenInt8 => cudnnDataType_t::CUDNN_DATA_INT8,
        miopenDataType_t::miopenBFloat16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        miopenDataType_t::miopenDouble => cudnnDataType_t::CUDNN_DATA_DOUBLE,
        miopenDataType_t::miopenInt64 => cudnnDataType_t::CUDNN_DATA_INT64,
        _ => return Err(miopenStatus_t::miopenStatusUnsupportedOp),
    };
    Ok(kind as u32)
}

/// The tensor of a descriptor.
///
/// # Safety
/// The descriptor is null, or was made by `miopenCreateTensorDescriptor` and not destroyed, and no other thread changes it.
pub(super) unsafe fn tensor<'a>(
    descriptor: miopenTensorDescriptor_t,
) -> Result<&'a mut Tensor, miopenStatus_t> {
    // SAFETY: as the caller says.
    unsafe { descriptor.cast::<Tensor>().as_mut() }.ok_or(BAD)
}

/// `count` numbers at `from`.
unsafe fn numbers<T: Copy + TryInto<i32>>(from: *const T, count: i32) -> Result<Vec<i32>, miopenStatus_t> {
    let count = usize::try_from(count).map_err(|_| BAD)?;
    if from.is_null() {
        return Err(BAD);
    }
    // SAFETY: the caller's array has as many.
    (0..count)
        .map(|index| unsafe { *from.add(index) }.try_into().map_err(|_| BAD))
        .collect()
}

export! { miopen, miopenStatus_t, run;
    fn miopenCreateTensorDescriptor(to: *mut miopenTensorDescriptor_t) {
        let empty = Tensor { kind: miopenDataType_t::miopenFloat, lengths: Vec::new(), strides: Vec::new() };
        to.write(Box::into_raw(Box::new(empty)).cast());
        Ok(())
    }

    fn miopenDestroyTensorDescriptor(of: miopenTensorDescriptor_t) {
        tensor(of)?;
        // It was made by `Box::into_raw` above.
        drop(Box::from_raw(of.cast::<Tensor>()));
        Ok(())
    }

    fn miopenSet4dTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, n: i32, c: i32, h: i32, w: i32,
    ) {
        let lengths = vec![n, c, h, w];
        let strides = Tensor::channels_first(&lengths)?;
        *tensor(of)? = Tensor::new(kind, lengths, strides)?;
        Ok(())
    }

    fn miopenSet4dTensorDescriptorEx(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, n: i32, c: i32, h: i32, w: i32, n_stride: i32,
        c_stride: i32, h_stride: i32, w_stride: i32,
    ) {
        *tensor(of)? = Tensor::new(kind, vec![n, c, h, w], vec![n_stride, c_stride, h_stride, w_stride])?;
        Ok(())
    }

    fn miopenSetTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, count: i32, lengths: *const i32, strides: *const i32,
    ) {
        let lengths = numbers(lengths, count)?;
        let strides =
            if strides.is_null() { Tensor::channels_first(&lengths)? } else { numbers(strides, count)? };
        *tensor(of)? = Tensor::new(kind, lengths, strides)?;
        Ok(())
    }

    fn miopenSetTensorDescriptorV2(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, count: i32, lengths: *const usize,
        strides: *const usize,
    ) {
        let lengths = numbers(lengths, count)?;
        let strides =
            if strides.is_null() { Tensor::channels_first(&lengths)? } else { numbers(strides, count)? };
        *tensor(of)? = Tensor::new(kind, lengths, strides)?;
        Ok(())
    }

    /// Vectorized channel layouts (NCHWc) are not supported.
    fn miopenSetNdTensorDescriptorWithLayout(
        of: miopenTensorDescriptor_t, kind: miopenDataType_t, layout: miopenTensorLayout_t, lengths: *const i32,
        count: i32,
    ) {
        let lengths = numbers(lengths, count)?;
        let strides = match layout {
            miopenTensorLayout_t::miopenTensorNCHW | miopenTensorLayout_t::miopenTensorNCDHW => {
                Tensor::channels_first(&lengths)?
            }
            miopenTensorLayout_t::miopenTensorNHWC | miopenTensorLayout_t::miopenTensorNDHWC => {
                Tensor::channels_last(&lengths)?
            }
            _ => return Err(miopenStatus_t::miopenStatusUnsupportedOp),
        };
        *tensor(of)? = Tensor::new(kind, lengths, strides)?;
        Ok(())
    }

    fn miopenGetTensorDescriptorSize(of: miopenTensorDescriptor_t, count: *mut i32) {
        count.write(tensor(of)?.lengths.len() as i32);
        Ok(())
    }

    fn miopenGetTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: *mut miopenDataType_t, lengths: *mut i32, strides: *mut i32,
    ) {
        let tensor = tensor(of)?;
        kind.write(tensor.kind);
        ptr::copy_nonoverlapping(tensor.lengths.as_ptr(), lengths, tensor.lengths.len());
        ptr::copy_nonoverlapping(tensor.strides.as_ptr(), strides, tensor.strides.len());
        Ok(())
    }

    fn miopenGet4dTensorDescriptor(
        of: miopenTensorDescriptor_t, kind: *mut miopenDataType_t, n: *mut i32, c: *mut i32, h: *mut i32, w: *mut i32,
        n_stride: *mut i32, c_stride: *mut i32, h_stride: *mut i32, w_stride: *mut i32,
    ) {
        let tensor = tensor(of)?;
        let (lengths, strides) = (&tensor.lengths, &tensor.strides);
        if lengths.len() != 4 {
            return Err(BAD);
        }
        kind.write(tensor.kind);
        for (index, (length, stride)) in
            [(n, n_stride), (c, c_stride), (h, h_stride), (w, w_stride)].into_iter().enumerate()
        {
            length.write(lengths[index]);
            stride.write(strides[index]);
        }
        Ok(())
    }

    fn miopenGetTensorNumBytes(of: miopenTensorDescriptor_t, bytes: *mut usize) {
        bytes.write(tensor(of)?.bytes()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_follow_the_layout() {
        assert_eq!(Tensor::channels_first(&[2, 3, 4, 5]), Ok(vec![60, 20, 5, 1]));
        assert_eq!(Tensor::channels_last(&[2, 3, 4, 5]), Ok(vec![60, 1, 15, 3]));
        assert_eq!(Tensor::channels_first(&[1 << 20, 1 << 20, 1]), Err(BAD));
    }

    #[test]
    fn bytes_reach_to_the_last_element() {
        let tensor = Tensor::new(miopenDataType_t::miopenHalf, vec![2, 3], vec![8, 1]);
        assert_eq!(tensor.and_then(|tensor| tensor.bytes()), Ok(22));
    }
}
