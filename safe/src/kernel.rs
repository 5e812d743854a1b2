//! A kernel with the type of its arguments.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, OnceLock};

use hipvit_sys::hip::{hipFuncAttribute, hipFunction_attribute, hipFunction_t};

use super::module::Module;
use super::operand::Operand;
use super::status::call;
use super::stream::Stream;
use crate::error::{Error, Result};

/// A kernel's one parameter: a `#[repr(C)]` structure of numbers, with device addresses as `u64`.
///
/// The type says which memory the kernel touches when it is given these values. [`Module::kernel`] promises that this is
/// true; [`Kernel::launch`] then checks it against the operands, so that a launch is safe.
pub trait Arguments: Copy + 'static {
    /// Tells `visit` every stretch of device memory that the kernel may touch.
    fn accesses(&self, visit: &mut dyn FnMut(Access));
}

/// A stretch of device memory that a kernel may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The field that holds the address, for errors.
    pub field: &'static str,
    /// Where it begins.
    pub address: u64,
    /// How long it is; 0 if the kernel does not use the address.
    pub bytes: usize,
    /// Whether the kernel writes there.
    pub written: bool,
}

impl Access {
    /// A stretch that is read.
    #[must_use]
    pub fn read(field: &'static str, address: u64, bytes: usize) -> Self {
        Self {
            field,
            address,
            bytes,
            written: false,
        }
    }

    /// A stretch that is written, and perhaps read.
    #[must_use]
    pub fn write(field: &'static str, address: u64, bytes: usize) -> Self {
        Self {
            written: true,
            ..Self::read(field, address, bytes)
        }
    }
}

/// The geometry of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic LDS of a block.
    pub lds_bytes: u32,
}

impl Launch {
    /// `grid` blocks of `block` threads in a row, without dynamic LDS.
    #[must_use]
    pub fn new(grid: u32, block: u32) -> Self {
        Self {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            lds_bytes: 0,
        }
    }
}

/// A kernel whose parameter is an `A`. Cheap to clone; keeps its module loaded.
pub struct Kernel<A> {
    module: Module,
    function: hipFunction_t,
    name: Box<str>,
    lds: Arc<Lds>,
    arguments: PhantomData<fn(&A)>,
}

/// What is known and done about the LDS of a kernel that is launched with dynamic LDS.
#[derive(Default)]
struct Lds {
    /// Bytes that the kernel declares itself.
    declared: OnceLock<usize>,
    /// Set once the driver has been told that launches may ask for all that there is.
    raised: OnceLock<()>,
}

// SAFETY: HIP's functions take a function handle from any thread; it lives as long as its module.
unsafe impl<A> Send for Kernel<A> {}
// SAFETY: as above.
unsafe impl<A> Sync for Kernel<A> {}

impl<A: Arguments> Kernel<A> {
    pub(super) fn new(module: Module, function: hipFunction_t, name: &str) -> Self {
        Self {
            module,
            function,
            name: name.into(),
            lds: Arc::default(),
            arguments: PhantomData,
        }
    }

    /// Its name in the code.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Submits a launch. The arguments are copied; `operands` are the memory that they point into. Dynamic LDS may take
    /// all that a block can get; the driver is told where that is more than a block gets without asking.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the geometry exceeds the device's, an argument points outside the operands or to one that
    /// it may not write, or an operand is another stream's; what the driver says of the launch.
    pub fn launch(
        &self,
        stream: &Stream,
        launch: Launch,
        arguments: &A,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        let device = stream.device();
        if device != self.module.device() {
            return Err(Error::argument("stream", "is of another device than the kernel"));
        }
        self.check_geometry(launch)?;
        if launch.lds_bytes > 0 {
            self.provide_lds(launch.lds_bytes as usize)?;
        }
        self.check_accesses(arguments, operands)?;
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        let mut parameters = [ptr::from_ref(arguments).cast_mut().cast()];
        stream.submit(operands, |hip| {
            // SAFETY: the function is of a loaded module and takes one parameter with the layout of `A`, which the call
            // copies; it touches only what `accesses` says, which lies in operands that this stream orders.
            unsafe {
                call!(
                    device,
                    hip.hipModuleLaunchKernel(
                        self.function,
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

    fn check_geometry(&self, launch: Launch) -> Result<()> {
        let limits = self.module.device().properties();
        let wrong = |reason: String| Err(Error::argument("launch", format!("{}: {reason}", self.name)));
        let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
        if launch.grid.contains(&0) || threads == 0 {
            return wrong(format!("{launch:?} is empty"));
        }
        if threads > u64::from(limits.threads_per_block) {
            return wrong(format!(
                "{threads} threads in a block, of {}",
                limits.threads_per_block
            ));
        }
        for (what, sizes, most) in [
            ("blocks", launch.grid, limits.grid),
            ("threads", launch.block, limits.block),
        ] {
            if sizes.iter().zip(most).any(|(&size, most)| size > most) {
                return wrong(format!("{sizes:?} {what}, of {most:?}"));
            }
        }
        Ok(())
    }

    /// Sees that a block can have `dynamic` bytes beside what the kernel declares.
    fn provide_lds(&self, dynamic: usize) -> Result<()> {
        let device = self.module.device();
        let limits = device.properties();
        let declared = self.declared_lds()?;
        let most = limits.lds_per_block_max.saturating_sub(declared);
        if dynamic > most {
            return Err(Error::argument(
                "launch",
                format!(
                    "{}: {dynamic} bytes of dynamic LDS beside {declared} that it declares; a block of {} can have {}",
                    self.name,
                    device.name(),
                    limits.lds_per_block_max
                ),
            ));
        }
        if declared + dynamic <= limits.lds_per_block || self.lds.raised.get().is_some() {
            return Ok(());
        }
        let hip = device.enter()?;
        // To the most at once, so that no two launches undo each other's.
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        // SAFETY: the function is of a loaded module.
        unsafe {
            call!(
                device,
                hip.hipFuncSetAttribute(
                    self.function.cast(),
                    hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize,
                    most
                )
            )
        }?;
        let _ = self.lds.raised.set(());
        Ok(())
    }

    fn declared_lds(&self) -> Result<usize> {
        if let Some(&declared) = self.lds.declared.get() {
            return Ok(declared);
        }
        let device = self.module.device();
        let hip = device.enter()?;
        let mut bytes = 0;
        // SAFETY: the call writes one int; the function is of a loaded module.
        unsafe {
            call!(
                device,
                hip.hipFuncGetAttribute(
                    &mut bytes,
                    hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                    self.function
                )
            )
        }?;
        Ok(*self
            .lds
            .declared
            .get_or_init(|| usize::try_from(bytes).unwrap_or(0)))
    }

    fn check_accesses(&self, arguments: &A, operands: &[Operand<'_>]) -> Result<()> {
        let mut result = Ok(());
        arguments.accesses(&mut |access| {
            let fits = |o: &Operand<'_>| {
                (!access.written || o.is_writable()) && o.contains(access.address, access.bytes)
            };
            if access.bytes > 0 && result.is_ok() && !operands.iter().any(fits) {
                result = Err(Error::argument(
                    "arguments",
                    format!(
                        "{}: {} bytes at {:#x} ({}) lie in no operand{}",
                        self.name,
                        access.bytes,
                        access.address,
                        access.field,
                        if access.written {
                            " that may be written"
                        } else {
                            ""
                        }
                    ),
                ));
            }
        });
        result
    }

    fn failed(&self, hip: &hipvit_sys::Hip, launch: Launch, error: Error) -> Error {
        // HIP keeps the error for whoever asks next, and libraries do.
        // SAFETY: takes no arguments.
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
                status: format!("{status} for `{}` with {launch:?}", self.name),
                advice,
            },
            other => other,
        }
    }
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        Self {
            module: self.module.clone(),
            function: self.function,
            name: self.name.clone(),
            lds: self.lds.clone(),
            arguments: PhantomData,
        }
    }
}

impl<A> fmt::Debug for Kernel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.name).finish()
    }
}
