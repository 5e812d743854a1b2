//! Attributes of pointers.

use std::ffi::c_void;
use std::ptr;

use gcnrun::{Allocation, Kind};
use hip_provider::hip::put;
use hipvit_sys::hip::{
    hipDeviceptr_t, hipError_t, hipMemoryType, hipPointer_attribute, hipPointerAttribute_t,
};

use super::copy::address;
use super::hip;
use super::machine::machine;
use super::memory::origin;

fn find<T>(pointer: *const T) -> Result<Option<Allocation>, hipError_t> {
    Ok(machine()?
        .memory
        .find(address(pointer))
        .filter(|found| found.live))
}

fn kind(found: &Allocation) -> hipMemoryType {
    match found.kind {
        Kind::Device(_) => hipMemoryType::hipMemoryTypeDevice,
        Kind::Pinned => hipMemoryType::hipMemoryTypeHost,
        Kind::Managed => hipMemoryType::hipMemoryTypeManaged,
    }
}

fn device(found: &Allocation) -> i32 {
    match found.kind {
        Kind::Device(device) => device as i32,
        Kind::Pinned | Kind::Managed => origin(found.begin).map_or(0, |origin| origin.device as i32),
    }
}

/// # Safety
/// `to` may be written with what the attribute is: a pointer, a size or a number.
unsafe fn write(
    to: *mut c_void,
    attribute: hipPointer_attribute,
    pointer: hipDeviceptr_t,
) -> Result<(), hipError_t> {
    let found = find(pointer)?.ok_or(hipError_t::hipErrorInvalidValue)?;
    let is_device = matches!(found.kind, Kind::Device(_));
    // SAFETY: as the caller says.
    unsafe {
        match attribute {
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE => put(to.cast(), kind(&found)),
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_DEVICE_POINTER => put(to.cast(), pointer),
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_HOST_POINTER if is_device => {
                Err(hipError_t::hipErrorInvalidValue)
            }
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_HOST_POINTER => put(to.cast(), pointer),
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_IS_MANAGED => {
                put(to.cast(), u32::from(found.kind == Kind::Managed))
            }
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(to.cast(), device(&found)),
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR => put(to.cast(), found.begin),
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_RANGE_SIZE => put(to.cast(), found.len as usize),
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_BUFFER_ID => put(to.cast(), found.begin),
            hipPointer_attribute::HIP_POINTER_ATTRIBUTE_MAPPED => put(to.cast(), 1_u32),
            _ => Err(hipError_t::hipErrorNotSupported),
        }
    }
}

hip! {
    /// An unknown address is unregistered host memory, and no error.
    fn hipPointerGetAttributes(to: *mut hipPointerAttribute_t, pointer: *const c_void) {
        if pointer.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let pointer = pointer.cast_mut();
        put(to, match find(pointer)? {
            None => hipPointerAttribute_t {
                type_: hipMemoryType::hipMemoryTypeUnregistered,
                device: -1,
                devicePointer: ptr::null_mut(),
                hostPointer: ptr::null_mut(),
                isManaged: 0,
                allocationFlags: 0,
            },
            Some(found) => hipPointerAttribute_t {
                type_: kind(&found),
                device: device(&found),
                devicePointer: pointer,
                hostPointer: if matches!(found.kind, Kind::Device(_)) { ptr::null_mut() } else { pointer },
                isManaged: i32::from(found.kind == Kind::Managed),
                allocationFlags: origin(found.begin).map_or(0, |origin| origin.flags),
            },
        })
    }

    fn hipPointerGetAttribute(to: *mut c_void, attribute: hipPointer_attribute, pointer: hipDeviceptr_t) {
        write(to, attribute, pointer)
    }

    /// Unsupported attributes are skipped.
    fn hipDrvPointerGetAttributes(
        count: u32, attributes: *mut hipPointer_attribute, to: *mut *mut c_void, pointer: hipDeviceptr_t,
    ) {
        if attributes.is_null() || to.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        for index in 0..count as usize {
            let _ = write(*to.add(index), *attributes.add(index), pointer);
        }
        Ok(())
    }
}
