//! DLPack: tensors of other libraries, <https://dmlc.github.io/dlpack>.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::slice;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::foreign::ForeignMemory;
use crate::stream::Stream;

/// DLPack's number of CUDA's memory.
pub const DL_CUDA: i32 = 2;

/// DLPack's number of ROCm's memory.
pub const DL_ROCM: i32 = 10;

/// `DLTensor`, with `DLDevice` and `DLDataType`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    /// In elements; null if the tensor is row-major.
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// A tensor that another library has given as a `DLManagedTensor`. Dropping it gives it back.
pub struct DlpackTensor(NonNull<Managed>);

impl DlpackTensor {
    /// Takes a `DLManagedTensor` over; `None` if the pointer is null.
    ///
    /// # Safety
    ///
    /// The pointer is null, or to a `DLManagedTensor` that nobody else uses or gives back, and whose library can be called from this thread
    /// and from the one that drops the result.
    #[must_use]
    pub unsafe fn from_raw(managed: *mut c_void) -> Option<Self> {
        NonNull::new(managed.cast()).map(Self)
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: it lives until it is given back, when this is dropped, and its fields do not change.
        unsafe { &self.0.as_ref().tensor }
    }

    /// The kind of device by DLPack's number, and the device's ordinal.
    #[must_use]
    pub fn device(&self) -> (i32, i32) {
        (self.tensor().device_type, self.tensor().device_id)
    }

    /// The extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        self.extents(self.tensor().shape).unwrap_or_default()
    }

    /// What its elements are, if this crate has that type.
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        let Tensor {
            code, bits, lanes, ..
        } = *self.tensor();
        match (code, bits, lanes) {
            (0, 8, 1) => Some(DType::I8),
            (0, 32, 1) => Some(DType::I32),
            (1, 8, 1) => Some(DType::U8),
            (2, 16, 1) => Some(DType::F16),
            (2, 32, 1) => Some(DType::F32),
            (4, 16, 1) => Some(DType::BF16),
            _ => None,
        }
    }

    /// Whether its elements lie one after the other, the last extent's first.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        let Some(strides) = self.extents(self.tensor().strides) else {
            return true;
        };
        let mut expected = 1;
        for (&extent, &stride) in self.shape().iter().zip(strides).rev() {
            // Of one element it does not matter how far the next would be.
            if extent != 1 && stride != expected {
                return self.shape().contains(&0);
            }
            expected *= extent;
        }
        true
    }

    /// Its memory, for work on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if it is not row-major, of a type that this crate does not have, or larger than memory can be.
    ///
    /// # Safety
    ///
    /// The tensor is on the stream's device; its library has made `stream` wait for the work that writes it, and has no other such work;
    /// this stays until `stream` has done all that is submitted to it while the result lives.
    pub unsafe fn memory(&self, stream: &Stream) -> Result<ForeignMemory> {
        let wrong = |reason: &str| Error::argument("tensor", reason);
        let dtype = self.dtype().ok_or_else(|| wrong("has another type"))?;
        if !self.is_row_major() {
            return Err(wrong("is not row-major"));
        }
        let bytes = self.shape().iter().try_fold(dtype.size(), |bytes, &extent| {
            bytes.checked_mul(usize::try_from(extent).ok()?)
        });
        let bytes = bytes.ok_or_else(|| wrong("is larger than memory can be"))?;
        let address = self.tensor().data as u64 + self.tensor().byte_offset;
        // SAFETY: as the caller says.
        Ok(unsafe { ForeignMemory::new(stream, address, bytes) })
    }

    /// As many numbers as there are dimensions; `None` without any.
    fn extents(&self, numbers: *const i64) -> Option<&[i64]> {
        let count = usize::try_from(self.tensor().ndim).ok()?;
        if numbers.is_null() {
            return None;
        }
        // SAFETY: DLPack has shape and strides point to `ndim` numbers, which live as long as the tensor.
        Some(unsafe { slice::from_raw_parts(numbers, count) })
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        // SAFETY: the tensor lives, and is given back once.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

impl fmt::Debug for DlpackTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DlpackTensor")
            .field("device", &self.device())
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static GIVEN_BACK: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn give_back(managed: *mut Managed) {
        GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
        // SAFETY: made by `Box::into_raw` below.
        drop(unsafe { Box::from_raw(managed) });
    }

    /// A tensor of f32 of this shape, whose arrays outlive it.
    fn tensor(shape: &'static [i64], strides: Option<&'static [i64]>) -> DlpackTensor {
        let managed = Box::new(Managed {
            tensor: Tensor {
                data: std::ptr::null_mut(),
                device_type: DL_ROCM,
                device_id: 1,
                ndim: shape.len() as i32,
                code: 2,
                bits: 32,
                lanes: 1,
                shape: shape.as_ptr().cast_mut(),
                strides: strides.map_or(std::ptr::null_mut(), |strides| strides.as_ptr().cast_mut()),
                byte_offset: 0,
            },
            context: std::ptr::null_mut(),
            deleter: Some(give_back),
        });
        // SAFETY: the tensor is no one else's.
        unsafe { DlpackTensor::from_raw(Box::into_raw(managed).cast()) }.unwrap()
    }

    #[test]
    fn tensors_are_read_and_given_back_once() {
        let before = GIVEN_BACK.load(Ordering::Relaxed);
        let plain = tensor(&[2, 3], None);
        assert_eq!((plain.device(), plain.dtype()), ((DL_ROCM, 1), Some(DType::F32)));
        assert_eq!(plain.shape(), [2, 3]);
        assert!(plain.is_row_major());
        for (shape, strides, row_major) in [
            (&[2, 3][..], &[3, 1][..], true),
            (&[2, 3], &[1, 2], false),
            (&[1, 3], &[7, 1], true),
            (&[2, 1, 3], &[3, 9, 1], true),
            (&[2, 3], &[6, 2], false),
            (&[0, 3], &[1, 1], true),
        ] {
            assert_eq!(
                tensor(shape, Some(strides)).is_row_major(),
                row_major,
                "{shape:?} {strides:?}"
            );
        }
        drop(plain);
        assert_eq!(GIVEN_BACK.load(Ordering::Relaxed), before + 7);
        // SAFETY: null is allowed.
        assert!(unsafe { DlpackTensor::from_raw(std::ptr::null_mut()) }.is_none());
    }
}
