//! The device and context of each thread.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::CUcontext;
use hipvit_sys::hip::{hipCtx_t, hipDevice_t, hipError_t};

use super::status::{cu, hip_without_context, run};

thread_local! {
    /// The device that the thread selected.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// Retained primary contexts, as addresses: one per device in use.
static PRIMARY: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());

/// Initialises the driver, once.
pub(crate) fn init() -> Result<(), hipError_t> {
    static INIT: OnceLock<Result<(), hipError_t>> = OnceLock::new();
    // SAFETY: takes no pointers.
    *INIT.get_or_init(|| unsafe { cu!(cuInit(0)) })
}

/// Ensures that the thread has a current context: that of its selected device, or of device 0.
pub(crate) fn bound() -> Result<(), hipError_t> {
    init()?;
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: `context` is a handle that the call may write.
    unsafe { cu!(cuCtxGetCurrent(&mut context))? };
    if context.is_null() {
        bind(DEVICE.get())
    } else {
        Ok(())
    }
}

/// [`run`], once the thread has a context.
pub(super) fn in_context(body: impl FnOnce() -> Result<(), hipError_t>) -> hipError_t {
    run(|| {
        bound()?;
        body()
    })
}

/// Exports HIP functions that need a current context; a thread without one gets its device's.
macro_rules! hip {
    ($($functions:tt)*) => {
        hip_provider::export! { hip, hipvit_sys::hip::hipError_t, $crate::hip::context::in_context; $($functions)* }
    };
}
pub(super) use hip;

/// Makes a device's primary context the thread's.
fn bind(device: i32) -> Result<(), hipError_t> {
    let context = primary(device)?;
    // SAFETY: the context is retained.
    unsafe { cu!(cuCtxSetCurrent(context)) }
}

/// A device's primary context, retained at first use.
pub(super) fn primary(device: i32) -> Result<CUcontext, hipError_t> {
    init()?;
    let mut retained = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = retained.get(&device) {
        return Ok(ptr::with_exposed_provenance_mut(*address));
    }
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: `context` is a handle that the call may write.
    unsafe { cu!(cuDevicePrimaryCtxRetain(&mut context, device))? };
    retained.insert(device, context.expose_provenance());
    Ok(context)
}

/// The thread's device.
pub(super) fn device() -> i32 {
    DEVICE.get()
}

/// The driver's ordinal of a device, which is HIP's, if the driver has the device.
pub(super) fn known(device: i32) -> Result<i32, hipError_t> {
    init()?;
    let mut confirmed = 0;
    // SAFETY: `confirmed` is a number that the call may write.
    unsafe { cu!(cuDeviceGet(&mut confirmed, device))? };
    Ok(confirmed)
}

hip_without_context! {
    fn hipInit(flags: u32) {
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        init()
    }

    fn hipSetDevice(device: i32) {
        bind(known(device)?)?;
        DEVICE.set(device);
        Ok(())
    }

    fn hipGetDevice(device: *mut i32) {
        init()?;
        device.write(DEVICE.get());
        Ok(())
    }

    fn hipDeviceGet(device: *mut hipDevice_t, ordinal: i32) {
        device.write(known(ordinal)?);
        Ok(())
    }

    /// Destroys what the process has on the thread's device; the device can be used again.
    fn hipDeviceReset() {
        init()?;
        let device = DEVICE.get();
        cu!(cuDevicePrimaryCtxReset_v2(device))?;
        let mut retained = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
        if retained.remove(&device).is_some() {
            cu!(cuDevicePrimaryCtxRelease_v2(device))?;
        }
        cu!(cuCtxSetCurrent(ptr::null_mut()))
    }

    fn hipCtxSetCurrent(context: hipCtx_t) {
        init()?;
        cu!(cuCtxSetCurrent(context.cast()))?;
        if !context.is_null() {
            let mut device = 0;
            cu!(cuCtxGetDevice(&mut device))?;
            DEVICE.set(device);
        }
        Ok(())
    }

    fn hipCtxGetCurrent(context: *mut hipCtx_t) {
        init()?;
        cu!(cuCtxGetCurrent(context.cast()))
    }

    fn hipDevicePrimaryCtxGetState(device: hipDevice_t, flags: *mut u32, active: *mut i32) {
        init()?;
        cu!(cuDevicePrimaryCtxGetState(device, flags, active))
    }

    fn hipDevicePrimaryCtxRetain(context: *mut hipCtx_t, device: hipDevice_t) {
        init()?;
        cu!(cuDevicePrimaryCtxRetain(context.cast(), device))
    }

    fn hipDevicePrimaryCtxRelease(device: hipDevice_t) {
        init()?;
        cu!(cuDevicePrimaryCtxRelease_v2(device))
    }

    /// Sets the flags of the thread's device. Must be called before its first use, as in CUDA's runtime.
    fn hipSetDeviceFlags(flags: u32) {
        init()?;
        cu!(cuDevicePrimaryCtxSetFlags_v2(DEVICE.get(), flags))
    }

    fn hipGetDeviceFlags(flags: *mut u32) {
        init()?;
        let mut active = 0;
        cu!(cuDevicePrimaryCtxGetState(DEVICE.get(), flags, &mut active))
    }
}

hip! {
    fn hipCtxGetDevice(device: *mut hipDevice_t) {
        cu!(cuCtxGetDevice(device))
    }

    fn hipDeviceSynchronize() {
        cu!(cuCtxSynchronize())
    }
}
