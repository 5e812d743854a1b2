//! Loaded device code.

use std::ffi::CString;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use hipvit_sys::hip::{hipError_t, hipModule_t};

use super::code::Code;
use super::device::Device;
use super::kernel::{Arguments, Kernel};
use super::status::{call, is};
use crate::error::{Error, Result};

/// Device code, loaded. Cheap to clone; unloaded when the last clone and the last [`Kernel`] are gone.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    raw: hipModule_t,
    /// Kept also since some drivers go on reading the image.
    code: Code,
}

// SAFETY: HIP's functions take a module handle from any thread; it is unloaded once, by the last owner.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    /// Loads `code` on `device`.
    ///
    /// # Errors
    ///
    /// [`Error::NoCode`] if it has none for the device's architecture, or for waves of another size than the device's.
    pub fn load(device: &Device, code: Code) -> Result<Self> {
        let hip = device.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle; the image lies within its bytes, which live as long as the module.
        let loaded = unsafe { call!(device, hip.hipModuleLoadData(&mut raw, code.as_ptr())) };
        loaded.map_err(|error| no_code(device, &code, error))?;
        let module = Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                raw,
                code,
            }),
        };
        // After the loading, so that a driver can first say that the code is for another architecture altogether.
        module.check_wave_size()?;
        Ok(module)
    }

    /// Launches are planned for the device's waves.
    fn check_wave_size(&self) -> Result<()> {
        let Inner { device, code, .. } = &*self.inner;
        let properties = device.properties();
        let waves = code.wave_sizes(properties.arch());
        match waves
            .into_iter()
            .find(|&(_, lanes)| lanes != properties.wave_size)
        {
            None => Ok(()),
            Some((kernel, lanes)) => Err(Error::NoCode {
                device: device.name().to_owned(),
                arch: properties.arch().to_owned(),
                reason: format!(
                    "the kernel `{kernel}` was compiled for waves of {lanes} lanes, and the GPU's have {}",
                    properties.wave_size
                ),
            }),
        }
    }

    /// The device that it is loaded on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The kernel called `name`, in the code's own spelling (`extern "C"`, or mangled).
    ///
    /// # Safety
    ///
    /// The kernel takes one parameter by value, of `A`'s size and layout. With whatever arguments and launch, it touches
    /// no memory but LDS, its own scratch, the module's globals, and what [`Arguments::accesses`] says of the arguments.
    ///
    /// # Errors
    ///
    /// There is no such kernel.
    pub unsafe fn kernel<A: Arguments>(&self, name: &str) -> Result<Kernel<A>> {
        let device = self.device();
        let c_name = CString::new(name).map_err(|error| Error::argument("kernel", error))?;
        let hip = device.enter()?;
        let mut function = ptr::null_mut();
        // SAFETY: the call writes one handle; the name ends in a zero.
        unsafe {
            call!(
                device,
                hip.hipModuleGetFunction(&mut function, self.inner.raw, c_name.as_ptr())
            )
        }
        .map_err(|error| match error {
            Error::Device {
                device, call, status, ..
            } => Error::Device {
                device,
                call,
                status,
                advice: format!("the module has no kernel `{name}`"),
            },
            other => other,
        })?;
        Ok(Kernel::new(self.clone(), function, name))
    }

    /// The value of the global variable called `name`, which the code must declare with `extern "C"` linkage. Waits for
    /// the device.
    ///
    /// # Errors
    ///
    /// There is no such variable, or it has another size than `T`.
    pub fn read_global<T: bytemuck::Pod>(&self, name: &str) -> Result<T> {
        let device = self.device();
        let c_name = CString::new(name).map_err(|error| Error::argument("global", error))?;
        let hip = device.enter()?;
        let (mut address, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the call writes an address and a size; the name ends in a zero.
        unsafe {
            call!(
                device,
                hip.hipModuleGetGlobal(&mut address, &mut bytes, self.inner.raw, c_name.as_ptr())
            )
        }?;
        if bytes != size_of::<T>() {
            let reason = format!("`{name}` has {bytes} bytes, not {}", size_of::<T>());
            return Err(Error::argument("global", reason));
        }
        let mut value = T::zeroed();
        // SAFETY: the variable has as many bytes as the value, and any bytes are a value.
        unsafe {
            call!(
                device,
                hip.hipMemcpyDtoH(ptr::from_mut(&mut value).cast(), address, bytes)
            )
        }?;
        Ok(value)
    }
}

/// Turns the drivers' several ways of saying that a code object is for another GPU into one.
fn no_code(device: &Device, code: &Code, error: Error) -> Error {
    let foreign = [
        hipError_t::hipErrorNoBinaryForGpu,
        hipError_t::hipErrorInvalidImage,
        hipError_t::hipErrorInvalidKernelFile,
    ];
    match &error {
        Error::Device { status, .. } if foreign.iter().any(|&f| is(&error, f)) => Error::NoCode {
            device: device.name().to_owned(),
            arch: device.properties().arch().to_owned(),
            reason: match code.targets() {
                [] => format!("hipModuleLoadData says {status}"),
                targets => format!("the code object is for {}", targets.join(", ")),
            },
        },
        _ => error,
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let device = &self.device;
        let _alone = device.between_captures();
        let result = device.select().and_then(|hip| {
            // Unloading code that runs is an error on some drivers, and worse on others.
            // SAFETY: takes no arguments; then the last owner unloads the module, once.
            unsafe {
                let idle = call!(device, hip.hipDeviceSynchronize());
                idle.and(call!(device, hip.hipModuleUnload(self.raw)))
            }
        });
        device.park(result);
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(self.device()).finish()
    }
}
