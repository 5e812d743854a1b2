//! Tensor descriptors of MIOpen.

use std::ptr;

use hipvit_sys::miopen::{miopenDataType_t, miopenTensorDescriptor_t};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::status::call;

/// Descriptor of a tensor.
pub(super) struct Tensor {
    device: Device,
    raw: miopenTensorDescriptor_t,
}

impl Tensor {
    /// Creates a descriptor of a packed tensor whose last dimension is contiguous.
    pub(super) fn new<const N: usize>(device: &Device, dtype: DType, shape: &[usize; N]) -> Result<Self> {
        Self::of(device, data_type(dtype)?, shape, &packed(*shape))
    }

    pub(super) fn of<const N: usize>(
        device: &Device,
        data_type: miopenDataType_t,
        shape: &[usize; N],
        strides: &[usize; N],
    ) -> Result<Self> {
        let table = libraries::miopen(device)?;
        let ints = |values: &[usize; N]| values.iter().map(|&n| int(n)).collect::<Result<Vec<_>>>();
        let (sizes, strides) = (ints(shape)?, ints(strides)?);
        let mut tensor = Self {
            device: device.clone(),
            raw: ptr::null_mut(),
        };
        // SAFETY: the calls write one handle, and read as many sizes and strides as their arguments say.
        unsafe {
            call!(device, table.miopenCreateTensorDescriptor(&mut tensor.raw))?;
            call!(
                device,
                table.miopenSetTensorDescriptor(
                    tensor.raw,
                    data_type,
                    shape.len() as i32,
                    sizes.as_ptr(),
                    strides.as_ptr(),
                )
            )?;
        }
        Ok(tensor)
    }

    pub(super) fn raw(&self) -> miopenTensorDescriptor_t {
        self.raw
    }
}

/// Returns the strides of a packed tensor, with the last dimension contiguous.
pub(super) fn packed<const N: usize>(shape: [usize; N]) -> [usize; N] {
    std::array::from_fn(|axis| shape[axis + 1..].iter().product())
}

/// Converts a size to MIOpen's type.
pub(super) fn int(size: usize) -> Result<i32> {
    i32::try_from(size).map_err(|_| Error::argument("shape", format!("{size} is too large for MIOpen")))
}

pub(super) fn data_type(dtype: DType) -> Result<miopenDataType_t> {
    match dtype {
        DType::F32 => Ok(miopenDataType_t::miopenFloat),
        DType::F16 => Ok(miopenDataType_t::miopenHalf),
        DType::BF16 => Ok(miopenDataType_t::miopenBFloat16),
        dtype => Err(Error::argument(
            "dtype",
            format!("MIOpen is not used for {dtype}"),
        )),
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        if !self.raw.is_null()
            && let Ok(table) = libraries::miopen(&self.device)
        {
            // SAFETY: destroyed once, by its owner.
            let result = unsafe { call!(self.device, table.miopenDestroyTensorDescriptor(self.raw)) };
            self.device.park(result);
        }
    }
}
