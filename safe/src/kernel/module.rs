//! Loaded device code.

use std::ffi::CString;
use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock};

use hipvit_sys::hip::{hipDeviceptr_t, hipError_t, hipFunction_t, hipModule_t};

use crate::code::Code;
use crate::code::metadata::{Kernels, Parameter};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::status::{call, is};
use crate::stream::Resource;

/// Loaded device code. Cheap to clone. It is unloaded when the last clone and the last of its kernels and globals are dropped.
///
/// [`Module::function`] returns a kernel with any parameters, [`Module::kernel`] one that takes a single structure, [`Module::global`] a
/// variable.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    raw: hipModule_t,
    /// Kept alive, also because some drivers still read the image after loading.
    code: Code,
    /// Parameters of kernels that the code declares, read on first use.
    kernels: OnceLock<Kernels>,
}

// SAFETY: HIP's functions take a module handle from any thread. It is unloaded once, by the last owner.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    /// Loads `code` on `device`.
    ///
    /// # Errors
    ///
    /// [`Error::NoCode`] if it has no code for the device's architecture, or only for another wave size.
    pub fn load(device: &Device, code: Code) -> Result<Self> {
        let hip = device.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle. The image is within its bytes, which live as long as the module.
        let loaded = unsafe { call!(device, hip.hipModuleLoadData(&mut raw, code.as_ptr())) };
        loaded.map_err(|error| no_code(device, &code, error))?;
        let module = Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                raw,
                code,
                kernels: OnceLock::new(),
            }),
        };
        // After loading, so that the driver first reports code for another architecture.
        module.check_wave_size()?;
        Ok(module)
    }

    /// Checks the wave size, because launches are planned for the device's.
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

    /// Returns the device that the code is loaded on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Reads the global variable called `name`, like [`Module::global`] with [`Global::read`], but without ordering after any kernel. For
    /// constants.
    ///
    /// [`Global::read`]: crate::Global::read
    ///
    /// # Errors
    ///
    /// The variable does not exist, or its size differs from `T`'s.
    pub fn read_global<T: bytemuck::Pod>(&self, name: &str) -> Result<T> {
        let device = self.device();
        let (address, bytes) = self.find_global(name)?;
        if bytes != size_of::<T>() {
            let reason = format!("`{name}` has {bytes} bytes, not {}", size_of::<T>());
            return Err(Error::argument("global", reason));
        }
        let _alone = device.between_captures();
        let hip = device.enter()?;
        let mut value = T::zeroed();
        // SAFETY: the variable has as many bytes as the value, and any bytes are a valid value.
        unsafe {
            call!(
                device,
                hip.hipMemcpyDtoH(ptr::from_mut(&mut value).cast(), address, bytes)
            )
        }?;
        Ok(value)
    }

    /// Returns the address and the bytes of the global variable `name`.
    pub(crate) fn find_global(&self, name: &str) -> Result<(hipDeviceptr_t, usize)> {
        let device = self.device();
        let c_name = self.name_in_code(name, "global")?;
        let hip = device.enter()?;
        let (mut address, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the call writes an address and a size; the name is zero-terminated.
        unsafe {
            call!(
                device,
                hip.hipModuleGetGlobal(&mut address, &mut bytes, self.inner.raw, c_name.as_ptr())
            )
        }
        .map_err(|error| advised(error, || format!("the module has no global variable `{name}`")))?;
        Ok((address, bytes))
    }

    /// Returns the kernel called `name`, and its name in the code.
    pub(crate) fn find_function(&self, name: &str) -> Result<(hipFunction_t, CString)> {
        let device = self.device();
        let c_name = self.name_in_code(name, "kernel")?;
        let hip = device.enter()?;
        let mut function = ptr::null_mut();
        // SAFETY: the call writes one handle; the name is zero-terminated.
        unsafe {
            call!(
                device,
                hip.hipModuleGetFunction(&mut function, self.inner.raw, c_name.as_ptr())
            )
        }
        .map_err(|error| advised(error, || format!("the module has no kernel `{name}`")))?;
        Ok((function, c_name))
    }

    /// Returns the resource that a captured graph keeps.
    pub(crate) fn resource(&self) -> Arc<dyn Resource> {
        self.inner.clone()
    }

    /// Returns the parameters that the code object declares for the kernel `name`.
    pub(crate) fn parameters(&self, name: &str) -> Option<&[Parameter]> {
        let Inner {
            device,
            code,
            kernels,
            ..
        } = &*self.inner;
        let kernels = kernels.get_or_init(|| code.kernels(device.properties().arch()));
        kernels.get(name).map(Vec::as_slice)
    }

    /// Returns `name`, or the lowered name if it is a name expression of the program.
    fn name_in_code(&self, name: &str, what: &'static str) -> Result<CString> {
        let lowered = self.inner.code.lowered_name(name).unwrap_or(name);
        CString::new(lowered).map_err(|error| Error::argument(what, error))
    }
}

fn advised(error: Error, what: impl FnOnce() -> String) -> Error {
    match error {
        Error::Device {
            device, call, status, ..
        } => Error::Device {
            device,
            call,
            status,
            advice: what(),
        },
        other => other,
    }
}

/// Unifies the drivers' different errors for a code object of another GPU.
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

/// A captured launch keeps the module as long as its graph.
impl Resource for Inner {
    fn used(&self, _submission: u64) {}
}

impl Drop for Inner {
    fn drop(&mut self) {
        let device = &self.device;
        let _alone = device.between_captures();
        let result = device.select().and_then(|hip| {
            // Unloading code that runs is undefined on some drivers, so wait first, and leak the module if that fails. SAFETY: no
            // arguments. Then the last owner unloads the module, once.
            unsafe {
                let idle = call!(device, hip.hipDeviceSynchronize());
                idle.and_then(|()| call!(device, hip.hipModuleUnload(self.raw)))
            }
        });
        match result {
            // Another library captures a stream, as observed with cuDNN. The code stays loaded.
            Err(error) if is(&error, hipError_t::hipErrorStreamCaptureUnsupported) => {}
            result => device.park(result),
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(self.device()).finish()
    }
}
