//! A kernel whose one parameter is a structure that tells what the kernel accesses.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::error::{Error, Result};
use crate::kernel::function::{Function, Passed};
use crate::kernel::launch::Launch;
use crate::kernel::module::Module;
use crate::memory::operand::Operand;
use crate::stream::Stream;

/// A kernel's one parameter: a `#[repr(C)]` structure of numbers, with device addresses as `u64`.
///
/// The type says which memory the kernel accesses when it is given these values. [`Module::kernel`] promises that this is
/// true; [`Kernel::launch`] then checks it against the operands, so that a launch is safe.
pub trait Arguments: Copy + 'static {
    /// Tells `visit` every range of device memory that the kernel may access.
    fn accesses(&self, visit: &mut dyn FnMut(Access));
}

/// A range of device memory that a kernel may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The field that holds the address, for errors.
    pub field: &'static str,
    /// Address of its first byte.
    pub address: u64,
    /// Length in bytes; 0 if the kernel does not use the address.
    pub bytes: usize,
    /// True if the kernel writes there.
    pub written: bool,
}

impl Access {
    /// A range that is read.
    #[must_use]
    pub fn read(field: &'static str, address: u64, bytes: usize) -> Self {
        Self {
            field,
            address,
            bytes,
            written: false,
        }
    }

    /// A range that is written, and perhaps read.
    #[must_use]
    pub fn write(field: &'static str, address: u64, bytes: usize) -> Self {
        Self {
            written: true,
            ..Self::read(field, address, bytes)
        }
    }
}

/// A kernel whose one parameter is an `A`. Cheap to clone; keeps its module loaded.
pub struct Kernel<A> {
    function: Function,
    arguments: PhantomData<fn(&A)>,
}

impl Module {
    /// The kernel called `name`, as for [`Module::function`], which takes one structure.
    ///
    /// # Safety
    ///
    /// The kernel takes one parameter by value, of `A`'s size and layout. With whatever arguments and launch, it accesses
    /// no memory but LDS, its own scratch, the module's globals, and what [`Arguments::accesses`] says of the arguments.
    ///
    /// # Errors
    ///
    /// There is no such kernel; [`Error::Parameter`] if the code object states other parameters than one of `A`'s size.
    pub unsafe fn kernel<A: Arguments>(&self, name: &str) -> Result<Kernel<A>> {
        let function = self.function(name)?;
        let passed = Passed {
            bytes: size_of::<A>(),
            buffer: false,
        };
        function.check_parameters([passed].into_iter())?;
        Ok(Kernel {
            function,
            arguments: PhantomData,
        })
    }
}

impl<A: Arguments> Kernel<A> {
    /// Name of the kernel in the code.
    #[must_use]
    pub fn name(&self) -> &str {
        self.function.name()
    }

    /// The kernel without the type of its arguments: its attributes and occupancy.
    #[must_use]
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Submits a launch. The arguments are copied; `operands` are the memory that they point into. Dynamic LDS may use all that a
    /// block can get; the driver is asked for more than the default where needed.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the geometry exceeds the device's, an argument points outside the operands, or an operand is
    /// read-only and written or belongs to a different stream. [`Error::Device`] if the driver refuses.
    pub fn launch(
        &self,
        stream: &Stream,
        launch: Launch,
        arguments: &A,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        self.function.prepare(stream, launch)?;
        self.check_accesses(arguments, operands)?;
        let mut parameters = [ptr::from_ref(arguments).cast_mut().cast()];
        // SAFETY: the kernel takes one parameter with the layout of `A`; it accesses only what `accesses` says, which was
        // found in the operands.
        unsafe { self.function.submit(stream, launch, &mut parameters, operands) }
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
