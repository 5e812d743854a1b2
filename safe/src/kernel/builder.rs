//! Launches whose arguments are added one by one.

use std::ffi::c_void;

use bytemuck::Pod;

use crate::address::DeviceAddress;
use crate::error::Result;
use crate::kernel::function::{Function, Passed};
use crate::kernel::launch::Launch;
use crate::memory::operand::Operand;
use crate::stream::Stream;

/// Arguments of a launch in order, and the operands among them.
#[derive(Debug, Default)]
pub(crate) struct Packed<'a> {
    /// Bytes of the arguments. Each starts at a word.
    words: Vec<u64>,
    /// First word and size of each argument.
    arguments: Vec<(usize, Passed)>,
    pub(crate) operands: Vec<Operand<'a>>,
}

impl<'a> Packed<'a> {
    pub(crate) fn value<T: Pod>(&mut self, value: T) {
        let bytes = bytemuck::bytes_of(&value);
        self.arguments.push((
            self.words.len(),
            Passed {
                bytes: bytes.len(),
                buffer: false,
            },
        ));
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_ne_bytes(word));
        }
    }

    pub(crate) fn buffer(&mut self, operand: Operand<'a>) {
        self.address(operand.address());
        self.operands.push(operand);
    }

    pub(crate) fn address(&mut self, address: DeviceAddress) {
        let passed = Passed {
            bytes: size_of::<DeviceAddress>(),
            buffer: true,
        };
        self.arguments.push((self.words.len(), passed));
        self.words.push(address.as_u64());
    }

    pub(crate) fn passed(&self) -> impl ExactSizeIterator<Item = Passed> {
        self.arguments.iter().map(|(_, passed)| *passed)
    }

    /// Returns a pointer to each argument. They point into `self`.
    pub(crate) fn pointers(&mut self) -> Vec<*mut c_void> {
        let words = self.words.as_mut_ptr();
        let at = |&(word, _): &(usize, Passed)| words.wrapping_add(word).cast();
        self.arguments.iter().map(at).collect()
    }
}

/// A launch that is being built by [`Function::launch`]. Add arguments in the order of the kernel's parameters, then call
/// [`submit`](LaunchBuilder::submit).
#[must_use = "nothing is launched before `submit`"]
#[derive(Debug)]
pub struct LaunchBuilder<'a> {
    function: &'a Function,
    stream: &'a Stream,
    launch: Launch,
    packed: Packed<'a>,
}

impl Function {
    /// Starts to build a launch on `stream`, with any number of arguments:
    ///
    /// ```no_run
    /// # use hip_safe::{Launch, Module, Result, Stream};
    /// # fn example(stream: &Stream, module: &Module) -> Result<()> {
    /// let saxpy = module.function("saxpy")?; // void saxpy(unsigned n, float a, const float* x, float* y)
    /// let x = stream.upload(&[1.0f32; 1000])?;
    /// let mut y = stream.zeroed::<f32>(1000)?;
    /// let launch = saxpy.launch(stream, Launch::for_elements(1000)).value(1000u32).value(2.0f32);
    /// // SAFETY: the kernel reads n elements of x and writes n of y, and both have as many.
    /// unsafe { launch.buffer(&x).buffer(&mut y).submit() }?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch<'a>(&'a self, stream: &'a Stream, launch: Launch) -> LaunchBuilder<'a> {
        LaunchBuilder {
            function: self,
            stream,
            launch,
            packed: Packed::default(),
        }
    }
}

impl<'a> LaunchBuilder<'a> {
    /// Adds an argument: a number or structure, by value. Its size is checked, but its type cannot be.
    pub fn value<T: Pod>(mut self, value: T) -> Self {
        self.packed.value(value);
        self
    }

    /// Adds an argument: device memory. The kernel reads a `&DeviceBuffer` or `&Frozen`, and may write a `&mut DeviceBuffer`. An
    /// [`Operand`] is a part of one.
    pub fn buffer(mut self, buffer: impl Into<Operand<'a>>) -> Self {
        self.packed.buffer(buffer.into());
        self
    }

    /// Adds an argument: a null pointer, for a kernel that supports it.
    pub fn null(mut self) -> Self {
        self.packed.address(DeviceAddress::NULL);
        self
    }

    /// Submits the launch. The arguments are copied.
    ///
    /// # Safety
    ///
    /// The arguments must have the types of the kernel's parameters. With them and this geometry, the kernel must only access LDS, its own
    /// scratch, the module's globals, and the given buffers. It must only write buffers that were passed as writable. (Sizes and kinds are
    /// checked if the code object declares them; accesses cannot be.)
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`](crate::Error::Parameter) if an argument does not match the declared parameter.
    /// [`Error::Argument`](crate::Error::Argument) if the geometry exceeds the device's, or a buffer belongs to a different stream.
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub unsafe fn submit(mut self) -> Result<()> {
        let Self {
            function,
            stream,
            launch,
            packed,
        } = &mut self;
        function.prepare(stream, *launch)?;
        function.check_parameters(packed.passed())?;
        let mut parameters = packed.pointers();
        // SAFETY: guaranteed by the caller. Parameters of another size were rejected, if sizes are declared.
        unsafe { function.submit(stream, *launch, &mut parameters, &packed.operands) }
    }
}
