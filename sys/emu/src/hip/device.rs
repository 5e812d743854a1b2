//! Devices by number and by PCI address, and their contexts.

use std::ffi::{CStr, c_char};
use std::ptr;

use hip_provider::export::copy_text;
use hip_provider::hip::put;
use hipvit_sys::hip::{hipCtx_t, hipDevice_t, hipDeviceProp_tR0600, hipError_t, hipLimit_t, hipUUID};

use super::machine::{self, Device, count, current, device, machine};
use super::properties::{bus, properties, uuid};
use super::{capture_mode, hip, queue};

/// A device's PCI address.
fn bus_id(device: &Device) -> String {
    format!("0000:{:02x}:00.0", bus(device))
}

/// # Safety
/// `to` has `len` bytes that may be written, unless it is null or `len` is not above 0.
unsafe fn put_text(text: &str, to: *mut c_char, len: i32) -> Result<(), hipError_t> {
    let len = usize::try_from(len).unwrap_or(0);
    if to.is_null() || len == 0 {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    // SAFETY: as the caller says.
    unsafe { copy_text(text.as_bytes(), to, len) };
    Ok(())
}

/// A context handle is this number plus the device's ordinal.
const CONTEXTS: usize = 0x200;

fn context(device: &Device) -> hipCtx_t {
    ptr::without_provenance_mut(CONTEXTS + device.ordinal as usize)
}

/// Limits of AMD's runtime, which are not enforced here.
fn limit(limit: hipLimit_t) -> Result<usize, hipError_t> {
    match limit {
        hipLimit_t::hipLimitStackSize => Ok(1024),
        hipLimit_t::hipLimitPrintfFifoSize => Ok(1 << 20),
        hipLimit_t::hipLimitMallocHeapSize => Ok(8 << 20),
        _ => Err(hipError_t::hipErrorUnsupportedLimit),
    }
}

hip! {
    fn hipInit(flags: u32) {
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        count().map(drop)
    }

    fn hipGetDeviceCount(to: *mut i32) {
        put(to, 0)?;
        put(to, count()? as i32)
    }

    fn hipSetDevice(ordinal: i32) {
        machine::choose(device(ordinal)?.ordinal);
        Ok(())
    }

    fn hipGetDevice(ordinal: *mut i32) {
        put(ordinal, machine::chosen()?.ordinal as i32)
    }

    fn hipDeviceGet(to: *mut hipDevice_t, ordinal: i32) {
        put(to, device(ordinal)?.ordinal as i32)
    }

    /// Makes a lost device usable again. Unlike in AMD's runtime, allocations stay, so that later uses of them are detected.
    fn hipDeviceReset() {
        capture_mode::forbid_waiting()?;
        let device = machine::chosen()?;
        queue::wait(&queue::ends(device.ordinal));
        device.reset();
        Ok(())
    }

    fn hipDeviceComputeCapability(major: *mut i32, minor: *mut i32, ordinal: hipDevice_t) {
        let capability = device(ordinal)?.part.capability;
        put(major, capability.0)?;
        put(minor, capability.1)
    }

    fn hipDeviceGetName(name: *mut c_char, len: i32, ordinal: hipDevice_t) {
        put_text(device(ordinal)?.part.name, name, len)
    }

    fn hipDeviceGetUuid(to: *mut hipUUID, ordinal: hipDevice_t) {
        put(to, uuid(device(ordinal)?))
    }

    fn hipDeviceGetPCIBusId(id: *mut c_char, len: i32, ordinal: i32) {
        put_text(&bus_id(device(ordinal)?), id, len)
    }

    fn hipDeviceGetByPCIBusId(ordinal: *mut i32, id: *const c_char) {
        if id.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let id = CStr::from_ptr(id).to_string_lossy();
        let found = machine()?.devices.iter().find(|device| bus_id(device).eq_ignore_ascii_case(&id));
        put(ordinal, found.ok_or(hipError_t::hipErrorInvalidDevice)?.ordinal as i32)
    }

    fn hipDeviceTotalMem(bytes: *mut usize, ordinal: hipDevice_t) {
        device(ordinal)?;
        put(bytes, machine()?.settings.memory as usize)
    }

    /// The first device with the requested compute capability and memory. Everything else is ignored.
    fn hipChooseDeviceR0600(to: *mut i32, wanted: *const hipDeviceProp_tR0600) {
        let wanted = wanted.as_ref().ok_or(hipError_t::hipErrorInvalidValue)?;
        for ordinal in 0..count()? as i32 {
            let has = properties(device(ordinal)?)?;
            if (has.major, has.minor) >= (wanted.major, wanted.minor) && has.totalGlobalMem >= wanted.totalGlobalMem {
                return put(to, ordinal);
            }
        }
        Err(hipError_t::hipErrorInvalidValue)
    }

    fn hipDeviceGetLimit(value: *mut usize, wanted: hipLimit_t) {
        current()?;
        put(value, limit(wanted)?)
    }

    /// Limits are fixed: the value is ignored.
    fn hipDeviceSetLimit(wanted: hipLimit_t, _value: usize) {
        current()?;
        limit(wanted).map(drop)
    }

    fn hipSetDeviceFlags(flags: u32) {
        machine::chosen()?.set_flags(flags);
        Ok(())
    }

    fn hipGetDeviceFlags(flags: *mut u32) {
        put(flags, machine::chosen()?.flags())
    }

    fn hipCtxSetCurrent(context: hipCtx_t) {
        if context.is_null() {
            return Ok(());
        }
        let ordinal = context.addr().checked_sub(CONTEXTS).ok_or(hipError_t::hipErrorInvalidContext)?;
        let device = device(ordinal as i32).map_err(|_| hipError_t::hipErrorInvalidContext)?;
        machine::choose(device.ordinal);
        Ok(())
    }

    fn hipCtxGetCurrent(to: *mut hipCtx_t) {
        put(to, context(machine::chosen()?))
    }

    fn hipCtxGetDevice(to: *mut hipDevice_t) {
        put(to, machine::chosen()?.ordinal as i32)
    }

    fn hipDevicePrimaryCtxGetState(ordinal: hipDevice_t, flags: *mut u32, active: *mut i32) {
        put(flags, device(ordinal)?.flags())?;
        put(active, 1)
    }

    fn hipDevicePrimaryCtxRetain(to: *mut hipCtx_t, ordinal: hipDevice_t) {
        put(to, context(device(ordinal)?))
    }

    fn hipDevicePrimaryCtxRelease(ordinal: hipDevice_t) {
        device(ordinal).map(drop)
    }
}
