//! Kernels, and the code path of all launches.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock};

use hipvit_sys::hip::{hipFuncAttribute, hipFunction_attribute, hipFunction_t};

use crate::code::metadata::{Kind, Parameter};
use crate::error::{Error, Result};
use crate::kernel::launch::Launch;
use crate::kernel::module::Module;
use crate::memory::operand::Operand;
use crate::status::call;
use crate::stream::Stream;

/// A kernel of a loaded [`Module`]. Cheap to clone. It keeps its module loaded.
///
/// There are two ways to launch it:
///
/// - [`Function::launch`] takes arguments one by one. Each launch is `unsafe`, because the caller guarantees what the kernel accesses.
/// - [`Function::typed`] is `unsafe` once: it states the types of the parameters and the accesses of the kernel. Each launch of the
///   [`TypedFunction`](crate::TypedFunction) is checked against them, and is safe.
///
/// Both check number, sizes and kinds of the arguments against the code object.
#[derive(Clone)]
pub struct Function {
    inner: Arc<Inner>,
}

struct Inner {
    module: Module,
    raw: hipFunction_t,
    name: Box<str>,
    lds: Lds,
}

/// LDS of a kernel that is launched with dynamic LDS.
#[derive(Default)]
struct Lds {
    /// Bytes that the kernel declares.
    declared: OnceLock<usize>,
    /// Set once the driver's limit for dynamic LDS was raised to the maximum.
    raised: OnceLock<()>,
}

// SAFETY: HIP's functions take a function handle from any thread. It lives as long as its module.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// An argument from the view of a code object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) bytes: usize,
    /// True if it is the address of a buffer.
    pub(crate) buffer: bool,
}

impl Module {
    /// Returns the kernel called `name`: its name in the code (`extern "C"`, or mangled), or a [name expression](crate::Program::name) that
    /// the program was compiled with.
    ///
    /// # Errors
    ///
    /// The kernel does not exist.
    pub fn function(&self, name: &str) -> Result<Function> {
        let (raw, name) = self.find_function(name)?;
        Ok(Function {
            inner: Arc::new(Inner {
                module: self.clone(),
                raw,
                name: name.to_string_lossy().into(),
                lds: Lds::default(),
            }),
        })
    }
}

impl Function {
    /// Returns the name of the kernel in the code.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the module of the kernel.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.inner.module
    }

    pub(crate) fn raw(&self) -> hipFunction_t {
        self.inner.raw
    }

    pub(crate) fn wrong(&self, parameter: Option<usize>, reason: impl Into<String>) -> Error {
        Error::Parameter {
            kernel: self.name().to_owned(),
            parameter,
            reason: reason.into(),
        }
    }

    /// Checks arguments against the parameters that the code object declares, if it declares them.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] if one does not match.
    pub(crate) fn check_parameters(&self, passed: impl ExactSizeIterator<Item = Passed>) -> Result<()> {
        let Some(stated) = self.module().parameters(self.name()) else {
            return Ok(());
        };
        if stated.len() != passed.len() {
            let parameters = match stated.len() {
                1 => "one parameter".into(),
                n => format!("{n} parameters"),
            };
            return Err(self.wrong(
                None,
                format!("takes {parameters}, but {} were given", passed.len()),
            ));
        }
        for (index, (parameter, passed)) in stated.iter().zip(passed).enumerate() {
            if let Some(reason) = mismatch(parameter, passed) {
                return Err(self.wrong(Some(index), reason));
            }
        }
        Ok(())
    }

    /// Submits a launch. `parameters` points to each argument in turn.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the geometry exceeds the device's, or an operand belongs to another stream. [`Error::Device`] if the launch
    /// fails.
    ///
    /// # Safety
    ///
    /// `parameters` must have a pointer for each of the kernel's parameters, to as many bytes as the parameter has. With these arguments
    /// the kernel must only access LDS, its own scratch, the module's globals, and the operands. It must only write writable operands.
    pub(crate) unsafe fn submit(
        &self,
        stream: &Stream,
        launch: Launch,
        parameters: &mut [*mut c_void],
        operands: &[Operand<'_>],
    ) -> Result<()> {
        let device = stream.device();
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        stream.keep(|| self.module().resource());
        stream.submit(operands, |hip| {
            // SAFETY: the module of the function is loaded. The call copies the arguments, which the caller guarantees. The kernel only
            // accesses operands that this stream orders.
            unsafe {
                call!(
                    device,
                    hip.hipModuleLaunchKernel(
                        self.raw(),
                        grid_x,
                        grid_y,
                        grid_z,
                        block_x,
                        block_y,
                        block_z,
                        launch.lds_bytes,
                        stream.raw(),
                        parameters.as_mut_ptr(),
                        ptr::null_mut(),
                    )
                )
            }
            .map_err(|error| self.failed(hip, launch, error))
        })
    }

    /// Checks a launch before its arguments, and provides its dynamic LDS.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the stream belongs to another device, or the geometry exceeds the device's.
    pub(crate) fn prepare(&self, stream: &Stream, launch: Launch) -> Result<()> {
        if stream.device() != self.module().device() {
            return Err(Error::argument(
                "stream",
                "belongs to a different device than the kernel",
            ));
        }
        self.check_geometry(launch)?;
        match launch.lds_bytes {
            0 => Ok(()),
            bytes => self.provide_lds(bytes as usize),
        }
    }

    fn check_geometry(&self, launch: Launch) -> Result<()> {
        let limits = self.module().device().properties();
        let wrong = |reason: String| Err(Error::argument("launch", format!("{}: {reason}", self.name())));
        let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
        if launch.grid.contains(&0) || threads == 0 {
            return wrong(format!("{launch:?} is empty"));
        }
        if threads > u64::from(limits.threads_per_block) {
            return wrong(format!(
                "the block has {threads} threads; the device allows {}",
                limits.threads_per_block
            ));
        }
        for (what, sizes, most) in [
            ("blocks", launch.grid, limits.grid),
            ("threads", launch.block, limits.block),
        ] {
            if sizes.iter().zip(most).any(|(&size, most)| size > most) {
                return wrong(format!("{sizes:?} {what}; the device allows {most:?}"));
            }
        }
        Ok(())
    }

    /// Ensures that a block can have `dynamic` bytes besides those that the kernel declares.
    fn provide_lds(&self, dynamic: usize) -> Result<()> {
        let device = self.module().device();
        let limits = device.properties();
        let declared = self.declared_lds()?;
        let most = limits.lds_per_block_max.saturating_sub(declared);
        if dynamic > most {
            return Err(Error::argument(
                "launch",
                format!(
                    "{}: {dynamic} bytes of dynamic LDS in addition to the {declared} that it declares; a block of {} can have {}",
                    self.name(),
                    device.name(),
                    limits.lds_per_block_max
                ),
            ));
        }
        if declared + dynamic <= limits.lds_per_block || self.inner.lds.raised.get().is_some() {
            return Ok(());
        }
        let hip = device.enter()?;
        // Raise it to the maximum at once, so that concurrent launches do not undo each other.
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        // SAFETY: the function belongs to a loaded module.
        unsafe {
            call!(
                device,
                hip.hipFuncSetAttribute(
                    self.raw().cast(),
                    hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize,
                    most
                )
            )
        }?;
        let _ = self.inner.lds.raised.set(());
        Ok(())
    }

    fn declared_lds(&self) -> Result<usize> {
        if let Some(&declared) = self.inner.lds.declared.get() {
            return Ok(declared);
        }
        let device = self.module().device();
        let hip = device.enter()?;
        let mut bytes = 0;
        // SAFETY: the call writes one int; the function belongs to a loaded module.
        unsafe {
            call!(
                device,
                hip.hipFuncGetAttribute(
                    &mut bytes,
                    hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                    self.raw()
                )
            )
        }?;
        Ok(*self
            .inner
            .lds
            .declared
            .get_or_init(|| usize::try_from(bytes).unwrap_or(0)))
    }

    fn failed(&self, hip: &hipvit_sys::Hip, launch: Launch, error: Error) -> Error {
        // HIP keeps the error for the next call that queries it, as libraries do. SAFETY: no arguments.
        let _ = unsafe { hip.hipGetLastError() };
        match error {
            Error::Device {
                device,
                call,
                status,
                advice,
            } => Error::Device {
                device,
                call,
                status: format!("{status} for `{}` with {launch:?}", self.name()),
                advice,
            },
            other => other,
        }
    }
}

/// Returns the reason if an argument does not fit a parameter.
fn mismatch(stated: &Parameter, passed: Passed) -> Option<String> {
    let Parameter { size, kind, .. } = stated;
    match kind {
        Kind::Other(kind) => Some(format!("is a `{kind}`, which a launch cannot give")),
        Kind::Value if passed.buffer => Some(format!("is a value of {size} bytes, and a buffer was given")),
        Kind::Global if !passed.buffer => Some("is a pointer to device memory, and a value was given".into()),
        _ if *size as usize != passed.bytes => Some(format!(
            "has {size} bytes, and an argument of {} was given",
            passed.bytes
        )),
        _ => None,
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.name()).finish()
    }
}
