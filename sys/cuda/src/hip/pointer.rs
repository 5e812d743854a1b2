//! Pointer attributes.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute};
use hipvit_sys::hip::{
    hipDeviceptr_t, hipError_t, hipMemoryType, hipPointer_attribute, hipPointerAttribute_t,
};

use super::{cu, hip};

/// A pointer as the integer that the driver takes.
pub(super) fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

hip! {
    /// An address that the driver does not know is unregistered host memory, not an error.
    fn hipPointerGetAttributes(to: *mut hipPointerAttribute_t, pointer: *const c_void) {
        if to.is_null() || pointer.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let (mut kind, mut device, mut managed) = (0_u32, -1_i32, 0_u32);
        let mut on_device: *mut c_void = ptr::null_mut();
        let mut on_host: *mut c_void = ptr::null_mut();
        let mut wanted = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
        ];
        let mut values: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut device).cast(),
            (&raw mut managed).cast(),
            (&raw mut on_device).cast(),
            (&raw mut on_host).cast(),
        ];
        cu!(cuPointerGetAttributes(5, wanted.as_mut_ptr(), values.as_mut_ptr(), address(pointer)))?;
        const HOST: u32 = CUmemorytype::CU_MEMORYTYPE_HOST as u32;
        const DEVICE: u32 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
        // The driver reports managed memory as device memory.
        let type_ = match kind {
            _ if managed & 0xff != 0 => hipMemoryType::hipMemoryTypeManaged,
            HOST => hipMemoryType::hipMemoryTypeHost,
            DEVICE => hipMemoryType::hipMemoryTypeDevice,
            _ => hipMemoryType::hipMemoryTypeUnregistered,
        };
        let known = type_ != hipMemoryType::hipMemoryTypeUnregistered;
        to.write(hipPointerAttribute_t {
            type_,
            device: if known { device } else { -1 },
            devicePointer: on_device,
            hostPointer: on_host,
            isManaged: i32::from(managed & 0xff != 0),
            allocationFlags: 0,
        });
        Ok(())
    }

    /// HIP's attributes have the driver's values.
    fn hipPointerGetAttribute(to: *mut c_void, attribute: hipPointer_attribute, pointer: hipDeviceptr_t) {
        cu!(cuPointerGetAttribute(to, attribute.0, address(pointer)))
    }

    fn hipDrvPointerGetAttributes(
        count: u32, attributes: *mut hipPointer_attribute, to: *mut *mut c_void, pointer: hipDeviceptr_t,
    ) {
        cu!(cuPointerGetAttributes(count, attributes.cast(), to, address(pointer)))
    }
}
