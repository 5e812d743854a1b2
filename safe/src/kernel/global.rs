//! Global variables of device code.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use hipvit_sys::hip::hipMemcpyKind;

use crate::address::DeviceAddress;
use crate::error::{Error, Result};
use crate::kernel::module::Module;
use crate::memory::operand::Operand;
use crate::status::call;
use crate::stream::Stream;

/// A `__device__` or `__constant__` variable of a loaded [`Module`]: `len` elements of `T` in device memory. It keeps its module loaded.
///
/// Every access is ordered by the given stream. Kernels of other streams that use the variable are not ordered with it: order them with
/// events. (Otherwise they read either value, or a mix. This is safe, since the values are plain bytes.)
#[derive(Clone)]
pub struct Global<T> {
    module: Module,
    name: Box<str>,
    address: DeviceAddress,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl Module {
    /// Returns the global variable `name`. `name` is its name in the code (`extern "C"`, or mangled), or a [name
    /// expression](crate::Program::name) that the program was compiled with, such as `&nn::scale`.
    ///
    /// # Errors
    ///
    /// The variable does not exist. [`Error::Argument`] if its size is not a multiple of `T`'s, or its address is not aligned.
    pub fn global<T: Pod + Send + Sync>(&self, name: &str) -> Result<Global<T>> {
        let (address, bytes) = self.find_global(name)?;
        let (address, size) = (DeviceAddress::from_ptr(address), size_of::<T>());
        if size == 0 || !bytes.is_multiple_of(size) || !address.is_aligned_to(align_of::<T>()) {
            let reason = format!(
                "`{name}` has {bytes} bytes at {address:#x}, which are not aligned elements of {size}"
            );
            return Err(Error::argument("global", reason));
        }
        Ok(Global {
            module: self.clone(),
            name: name.into(),
            address,
            len: bytes / size,
            element: PhantomData,
        })
    }
}

impl<T: Pod + Send + Sync> Global<T> {
    /// Returns the number of elements: 1 if it is not an array.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Returns the address of the first byte on the device.
    #[must_use]
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Copies all elements to the host, after the stream's work so far, and waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the copy or earlier work of the stream failed.
    pub fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        let mut buffer = stream.allocate::<T>(self.len)?;
        self.copy_to(stream, buffer.writing())?;
        buffer.read()
    }

    /// Sets all elements, after the stream's work so far, and waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the number of values differs; [`Error::Device`] if the copy fails.
    pub fn write(&self, stream: &Stream, values: &[T]) -> Result<()> {
        self.fits(size_of_val(values))?;
        let buffer = stream.upload(values)?;
        self.copy_from(stream, buffer.reading())
    }

    /// Copies all elements to `target` on the device. Both must have the same size.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the lengths differ, the target is read-only or belongs to another stream, or the stream belongs to another
    /// device. [`Error::Device`] if the driver fails.
    pub fn copy_to(&self, stream: &Stream, target: Operand<'_>) -> Result<()> {
        self.fits(target.bytes())?;
        target.expect("target", self.bytes(), true)?;
        self.copy(stream, target, target.address(), self.address)
    }

    /// Copies all of `source` to the variable on the device. Both must have the same size.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the operand differs in size or belongs to a different stream; [`Error::Device`] if the copy fails.
    pub fn copy_from(&self, stream: &Stream, source: Operand<'_>) -> Result<()> {
        self.fits(source.bytes())?;
        self.copy(stream, source, self.address, source.address())
    }

    fn fits(&self, bytes: usize) -> Result<()> {
        if bytes == self.bytes() {
            Ok(())
        } else {
            let reason = format!(
                "`{}` has {} bytes, and {bytes} were given",
                self.name,
                self.bytes()
            );
            Err(Error::argument("global", reason))
        }
    }

    fn copy(
        &self,
        stream: &Stream,
        operand: Operand<'_>,
        to: DeviceAddress,
        from: DeviceAddress,
    ) -> Result<()> {
        let device = stream.device();
        if device != self.module.device() {
            return Err(Error::argument(
                "stream",
                "belongs to a different device than the module",
            ));
        }
        // A captured graph would outlive the module.
        stream.refuse_capture("a copy of a global variable")?;
        stream.submit(&[operand], |hip| {
            // SAFETY: both have this many bytes. The stream orders the operand. The module owns the variable, and waits for the device
            // before it is unloaded.
            unsafe {
                call!(
                    device,
                    hip.hipMemcpyAsync(
                        to.as_mut_ptr(),
                        from.as_mut_ptr(),
                        self.bytes(),
                        hipMemcpyKind::hipMemcpyDeviceToDevice,
                        stream.raw(),
                    )
                )
            }
        })
    }
}

impl<T> fmt::Debug for Global<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Global")
            .field("name", &self.name)
            .field("address", &self.address)
            .field("len", &self.len)
            .finish()
    }
}
