//! DLPack: import and export of tensors, <https://dmlc.github.io/dlpack>.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use crate::address::DeviceAddress;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::buffer::DeviceBuffer;
use crate::memory::foreign::ForeignMemory;
use crate::stream::Stream;

/// DLPack's device type of CUDA.
pub const DL_CUDA: i32 = 2;

/// DLPack's device type of ROCm.
pub const DL_ROCM: i32 = 10;

impl Device {
    /// Returns DLPack's device type, and the ordinal.
    #[must_use]
    pub fn dlpack(&self) -> (i32, i32) {
        let kind = if self.properties().arch().starts_with("gfx") {
            DL_ROCM
        } else {
            DL_CUDA
        };
        (kind, self.ordinal() as i32)
    }
}

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
    /// Strides in elements. Null if the tensor is row-major.
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

/// A tensor that another library exported as a `DLManagedTensor`. Dropping it calls the tensor's deleter.
pub struct DlpackTensor(NonNull<Managed>);

impl DlpackTensor {
    /// Takes over a `DLManagedTensor`. `None` if the pointer is null.
    ///
    /// # Safety
    ///
    /// The pointer must be null, or point to a `DLManagedTensor` that no other owner uses or deletes. Its library must be callable from
    /// this thread and from the one that drops the result.
    #[must_use]
    pub unsafe fn from_raw(managed: *mut c_void) -> Option<Self> {
        NonNull::new(managed.cast()).map(Self)
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: the tensor is alive until it is deleted, when this is dropped, and its fields do not change.
        unsafe { &self.0.as_ref().tensor }
    }

    /// Returns DLPack's device type, and the device's ordinal.
    #[must_use]
    pub fn device(&self) -> (i32, i32) {
        (self.tensor().device_type, self.tensor().device_id)
    }

    /// Returns the extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        self.extents(self.tensor().shape).unwrap_or_default()
    }

    /// Returns the dtype. `None` if this crate does not support it.
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

    /// Returns true if the elements are contiguous in row-major order.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        let Some(strides) = self.extents(self.tensor().strides) else {
            return true;
        };
        let mut expected = 1;
        for (&extent, &stride) in self.shape().iter().zip(strides).rev() {
            // The stride of an extent of one element is irrelevant.
            if extent != 1 && stride != expected {
                return self.shape().contains(&0);
            }
            expected *= extent;
        }
        true
    }

    /// Returns the tensor's memory, for work on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the tensor is not row-major, has an unsupported dtype, or exceeds the address space.
    ///
    /// # Safety
    ///
    /// The tensor must be on the stream's device. Its library must have made `stream` wait for all pending writes. The tensor must live
    /// until `stream` has done all work that is submitted while the result is alive.
    pub unsafe fn memory(&self, stream: &Stream) -> Result<ForeignMemory> {
        let wrong = |reason: &str| Error::argument("tensor", reason);
        let dtype = self.dtype().ok_or_else(|| wrong("has a different type"))?;
        if !self.is_row_major() {
            return Err(wrong("is not row-major"));
        }
        let bytes = self.shape().iter().try_fold(dtype.size(), |bytes, &extent| {
            bytes.checked_mul(usize::try_from(extent).ok()?)
        });
        let bytes = bytes.ok_or_else(|| wrong("is larger than memory can be"))?;
        let address = DeviceAddress::from_raw(self.tensor().data as u64 + self.tensor().byte_offset);
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { ForeignMemory::new(stream, address, bytes) })
    }

    /// Returns a number per dimension. `None` without dimensions.
    fn extents(&self, numbers: *const i64) -> Option<&[i64]> {
        let count = usize::try_from(self.tensor().ndim).ok()?;
        if numbers.is_null() {
            return None;
        }
        // SAFETY: in DLPack, shape and strides point to `ndim` numbers, which live as long as the tensor.
        Some(unsafe { slice::from_raw_parts(numbers, count) })
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        // SAFETY: the tensor is alive and deleted once.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// A view of device memory to export as a tensor.
#[derive(Clone, Copy, Debug)]
pub struct DlpackView<'a> {
    /// Dtype of the elements.
    pub dtype: DType,
    /// Offset of the first element from the start of the memory, in bytes.
    pub offset: usize,
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// Strides of the extents in elements.
    pub strides: &'a [usize],
}

/// Owner of an exported tensor's memory and extents.
struct Exported {
    managed: Managed,
    shape: Vec<i64>,
    strides: Vec<i64>,
    memory: Arc<DeviceBuffer<u8>>,
}

impl DlpackTensor {
    /// Exports `memory` as a tensor for another library, which may write to it. The memory is freed with its last owner. The tensor's
    /// deleter waits for the whole device before it frees the memory, since it is unknown which work of the other library still reads it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the view exceeds the memory, or if shape and strides differ in length.
    pub fn export(memory: &Arc<DeviceBuffer<u8>>, view: DlpackView<'_>) -> Result<Self> {
        let DlpackView {
            dtype,
            offset,
            shape,
            strides,
        } = view;
        let wrong = |reason: String| Error::argument("view", reason);
        if shape.len() != strides.len() {
            return Err(wrong(format!(
                "has the shape {shape:?} and the strides {strides:?}"
            )));
        }
        let last = shape
            .iter()
            .zip(strides)
            .try_fold(0usize, |last, (&extent, &stride)| {
                last.checked_add(extent.saturating_sub(1).checked_mul(stride)?)
            });
        let elements = if shape.contains(&0) {
            Some(0)
        } else {
            last.and_then(|last| last.checked_add(1))
        };
        let end = elements.and_then(|n| n.checked_mul(dtype.size())?.checked_add(offset));
        if end.is_none_or(|end| end > memory.bytes()) {
            return Err(wrong(format!(
                "of shape {shape:?} reaches beyond {} bytes",
                memory.bytes()
            )));
        }
        let (code, bits) = code(dtype);
        let (device_type, device_id) = memory.stream().device().dlpack();
        let numbers = |values: &[usize]| values.iter().map(|&v| v as i64).collect::<Vec<_>>();
        let mut exported = Box::new(Exported {
            shape: numbers(shape),
            strides: numbers(strides),
            memory: memory.clone(),
            managed: Managed {
                tensor: Tensor {
                    data: memory.address().as_mut_ptr(),
                    device_type,
                    device_id,
                    ndim: shape.len() as i32,
                    code,
                    bits,
                    lanes: 1,
                    shape: ptr::null_mut(),
                    strides: ptr::null_mut(),
                    byte_offset: offset as u64,
                },
                context: ptr::null_mut(),
                deleter: Some(free),
            },
        });
        exported.managed.tensor.shape = exported.shape.as_mut_ptr();
        exported.managed.tensor.strides = exported.strides.as_mut_ptr();
        let exported = NonNull::from(Box::leak(exported));
        // SAFETY: just created. The pointer has the provenance of the whole box, so that `free` gets it back.
        unsafe {
            let managed = &raw mut (*exported.as_ptr()).managed;
            (*managed).context = exported.as_ptr().cast();
            Ok(Self(NonNull::new_unchecked(managed)))
        }
    }

    /// Returns the `DLManagedTensor`. Its receiver must call the deleter once.
    #[must_use]
    pub fn into_raw(self) -> *mut c_void {
        let raw = self.0.as_ptr().cast();
        std::mem::forget(self);
        raw
    }
}

/// Deleter of [`DlpackTensor::export`].
unsafe extern "C" fn free(managed: *mut Managed) {
    // SAFETY: by the protocol, this is called once with a tensor from `export`, whose context is the box.
    let exported = unsafe { Box::from_raw((*managed).context.cast::<Exported>()) };
    let device = exported.memory.stream().device();
    device.park(device.synchronize());
}

/// Returns DLPack's type code and number of bits of a dtype.
fn code(dtype: DType) -> (u8, u8) {
    match dtype {
        DType::I8 => (0, 8),
        DType::I32 => (0, 32),
        DType::U8 => (1, 8),
        DType::F16 => (2, 16),
        DType::F32 => (2, 32),
        DType::BF16 => (4, 16),
        DType::F8E4M3 => (10, 8),
        DType::F8E4M3Fnuz => (11, 8),
        DType::F8E5M2 => (12, 8),
        DType::F8E5M2Fnuz => (13, 8),
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
        // SAFETY: created by `Box::into_raw` below.
        drop(unsafe { Box::from_raw(managed) });
    }

    /// Returns an f32 tensor of this shape, whose arrays outlive it.
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
        // SAFETY: the tensor has no other owner.
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
