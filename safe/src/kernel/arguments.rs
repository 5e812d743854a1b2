//! Kernels whose only parameter is a structure that states the kernel's accesses.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::address::DeviceAddress;
use crate::error::{Error, Result};
use crate::kernel::function::{Function, Passed};
use crate::kernel::launch::Launch;
use crate::kernel::module::Module;
use crate::memory::operand::Operand;
use crate::stream::Stream;

/// The only parameter of a kernel: a `#[repr(C)]` structure of numbers, with device addresses as [`DeviceAddress`].
///
/// The type states which memory the kernel accesses with these values. [`Module::kernel`] is the promise that this is true.
/// [`Kernel::launch`] checks the accesses against the operands, so that a launch is safe.
pub trait Arguments: 'static {
    /// Calls `visit` with every range of device memory that the kernel may access.
    fn accesses(&self, visit: &mut dyn FnMut(Access));
}

/// A range of device memory that a kernel may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Name of the field with the address, for errors.
    pub field: &'static str,
    /// Address of the first byte.
    pub address: DeviceAddress,
    /// Length in bytes. 0 if the kernel does not use the address.
    pub bytes: usize,
    /// True if the kernel writes to the range.
    pub written: bool,
}

impl Access {
    /// Creates a range that is read.
    #[must_use]
    pub fn read(field: &'static str, address: DeviceAddress, bytes: usize) -> Self {
        Self {
            field,
            address,
            bytes,
            written: false,
        }
    }

    /// Creates a range that is written, and may be read.
    #[must_use]
    pub fn write(field: &'static str, address: DeviceAddress, bytes: usize) -> Self {
        Self {
            written: true,
            ..Self::read(field, address, bytes)
        }
    }
}

/// A kernel whose only parameter is an `A`. Cheap to clone. It keeps its module loaded.
pub struct Kernel<A> {
    function: Function,
    arguments: PhantomData<fn(&A)>,
}

impl Module {
    /// Returns the kernel called `name`, as in [`Module::function`], with one structure as its parameter.
    ///
    /// # Safety
    ///
    /// The kernel must have one parameter by value, with the size and layout of `A`. With any arguments and launch, it must only access
    /// LDS, its own scratch, the module's globals, and the memory that [`Arguments::accesses`] states for the arguments.
    ///
    /// # Errors
    ///
    /// The kernel does not exist. [`Error::Parameter`] if the code object declares other parameters than one of `A`'s size.
    pub unsafe fn kernel<A: Arguments>(&self, name: &str) -> Result<Kernel<A>> {
        let function = self.function(name)?;
        function.check_structure(size_of::<A>())?;
        Ok(Kernel {
            function,
            arguments: PhantomData,
        })
    }
}

impl Function {
    /// Checks that the kernel's only parameter is a structure of `bytes` bytes, if the code object declares parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] if the code object declares others.
    pub fn check_structure(&self, bytes: usize) -> Result<()> {
        let passed = Passed { bytes, buffer: false };
        self.check_parameters([passed].into_iter())
    }

    /// Submits a launch with one structure, as [`Kernel::launch`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Kernel::launch`].
    ///
    /// # Safety
    ///
    /// The kernel must have one parameter by value, with the size and layout of `arguments`. With these arguments and this launch, it must
    /// only access LDS, its own scratch, the module's globals, and the memory that [`Arguments::accesses`] states.
    pub unsafe fn launch_structure(
        &self,
        stream: &Stream,
        launch: Launch,
        arguments: &dyn Arguments,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        self.prepare(stream, launch)?;
        self.check_accesses(arguments, operands)?;
        let mut parameters = [ptr::from_ref(arguments).cast_mut().cast()];
        // SAFETY: the kernel takes one parameter with the layout of `arguments`. It only accesses ranges from `accesses`, which were found
        // in the operands.
        unsafe { self.submit(stream, launch, &mut parameters, operands) }
    }

    fn check_accesses(&self, arguments: &dyn Arguments, operands: &[Operand<'_>]) -> Result<()> {
        let mut result = Ok(());
        arguments.accesses(&mut |access| {
            let fits = |o: &Operand<'_>| {
                (!access.written || o.is_writable()) && o.contains(access.address, access.bytes)
            };
            if access.bytes > 0 && result.is_ok() && !operands.iter().any(fits) {
                result = Err(Error::argument(
                    "arguments",
                    format!(
                        "{}: {} bytes at {:#x} ({}) are outside every operand{}",
                        self.name(),
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
}

impl<A: Arguments> Kernel<A> {
    /// Returns the name of the kernel in the code.
    #[must_use]
    pub fn name(&self) -> &str {
        self.function.name()
    }

    /// Returns the kernel without the type of its arguments, for attributes and occupancy.
    #[must_use]
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Submits a launch. The arguments are copied, and `operands` are the memory that they point to. Dynamic LDS may use all that a block
    /// can have. If it exceeds the default, the driver's limit is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the geometry exceeds the device's, an argument points outside the operands, an operand that is written is
    /// read-only, or an operand belongs to a different stream. [`Error::Device`] if the driver fails.
    pub fn launch(
        &self,
        stream: &Stream,
        launch: Launch,
        arguments: &A,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        // SAFETY: what `Module::kernel` was promised.
        unsafe {
            self.function
                .launch_structure(stream, launch, arguments, operands)
        }
    }
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        Self {
            function: self.function.clone(),
            arguments: PhantomData,
        }
    }
}

impl<A> fmt::Debug for Kernel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.function.name()).finish()
    }
}
