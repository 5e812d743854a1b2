//! Devices by ordinal and by PCI address; versions.

use std::ffi::c_char;

use hipvit_sys::hip::{
    self, hipDevice_t, hipDeviceProp_tR0600, hipError_t, hipLimit_t, hipMemPool_t, hipUUID,
};

use super::properties::properties;
use super::{context, cu, hip, hip_without_context, init};

fn count() -> Result<i32, hipError_t> {
    init()?;
    let mut count = 0;
    // SAFETY: `count` is a number that the call may write.
    unsafe { cu!(cuDeviceGetCount(&mut count))? };
    if count == 0 {
        Err(hipError_t::hipErrorNoDevice)
    } else {
        Ok(count)
    }
}

/// HIP's limits have the driver's values; AMD's own are above them.
fn limit(limit: hipLimit_t) -> Result<u32, hipError_t> {
    match limit {
        hipLimit_t::hipLimitStackSize
        | hipLimit_t::hipLimitPrintfFifoSize
        | hipLimit_t::hipLimitMallocHeapSize => Ok(limit.0),
        _ => Err(hipError_t::hipErrorUnsupportedLimit),
    }
}

hip_without_context! {
    fn hipDriverGetVersion(version: *mut i32) {
        init()?;
        cu!(cuDriverGetVersion(version))
    }

    /// The version of the HIP headers that this library implements.
    fn hipRuntimeGetVersion(version: *mut i32) {
        version.write(hip::HIP_VERSION as i32);
        Ok(())
    }

    fn hipGetDeviceCount(to: *mut i32) {
        if to.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        to.write(0);
        to.write(count()?);
        Ok(())
    }

    fn hipDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: hipDevice_t) {
        let properties = properties(context::known(device)?)?;
        major.write(properties.major);
        minor.write(properties.minor);
        Ok(())
    }

    fn hipDeviceGetName(name: *mut c_char, len: i32, device: hipDevice_t) {
        cu!(cuDeviceGetName(name, len, context::known(device)?))
    }

    fn hipDeviceGetUuid(uuid: *mut hipUUID, device: hipDevice_t) {
        cu!(cuDeviceGetUuid_v2(uuid.cast(), context::known(device)?))
    }

    fn hipDeviceGetPCIBusId(id: *mut c_char, len: i32, device: i32) {
        cu!(cuDeviceGetPCIBusId(id, len, context::known(device)?))
    }

    fn hipDeviceGetByPCIBusId(device: *mut i32, id: *const c_char) {
        init()?;
        cu!(cuDeviceGetByPCIBusId(device, id))
    }

    fn hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t) {
        cu!(cuDeviceTotalMem_v2(bytes, context::known(device)?))
    }

    /// The first device with the wanted compute capability and memory; other properties are ignored.
    fn hipChooseDeviceR0600(device: *mut i32, wanted: *const hipDeviceProp_tR0600) {
        let wanted = wanted.as_ref().ok_or(hipError_t::hipErrorInvalidValue)?;
        for candidate in 0..count()? {
            let has = properties(candidate)?;
            if (has.major, has.minor) >= (wanted.major, wanted.minor) && has.totalGlobalMem >= wanted.totalGlobalMem {
                device.write(candidate);
                return Ok(());
            }
        }
        Err(hipError_t::hipErrorInvalidValue)
    }

    fn hipDeviceGetDefaultMemPool(pool: *mut hipMemPool_t, device: i32) {
        cu!(cuDeviceGetDefaultMemPool(pool.cast(), context::known(device)?))
    }

    fn hipDeviceGetMemPool(pool: *mut hipMemPool_t, device: i32) {
        cu!(cuDeviceGetMemPool(pool.cast(), context::known(device)?))
    }

    fn hipDeviceSetMemPool(device: i32, pool: hipMemPool_t) {
        cu!(cuDeviceSetMemPool(context::known(device)?, pool.cast()))
    }
}

hip! {
    fn hipDeviceGetLimit(value: *mut usize, wanted: hipLimit_t) {
        cu!(cuCtxGetLimit(value, limit(wanted)?))
    }

    fn hipDeviceSetLimit(wanted: hipLimit_t, value: usize) {
        cu!(cuCtxSetLimit(limit(wanted)?, value))
    }

    fn hipDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        cu!(cuCtxGetStreamPriorityRange(least, greatest))
    }
}
