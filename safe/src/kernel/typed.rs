//! Kernels with typed parameters and a statement of their accesses.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use crate::error::{Error, Result};
use crate::kernel::builder::Packed;
use crate::kernel::function::{Function, Passed};
use crate::kernel::launch::Launch;
use crate::memory::buffer::{DeviceBuffer, Frozen};
use crate::memory::operand::Operand;
use crate::stream::Stream;

/// In a signature: a pointer to elements that the kernel reads, `const T*`. The argument is a `&DeviceBuffer<T>`, a `&Frozen<T>`, or an
/// [`Operand`].
#[derive(Debug)]
pub struct In<T>(PhantomData<fn() -> T>);

/// In a signature: a pointer to elements that the kernel writes and may read, `T*`. The argument is a `&mut DeviceBuffer<T>`, or a writable
/// [`Operand`].
#[derive(Debug)]
pub struct Out<T>(PhantomData<fn() -> T>);

/// Type of a parameter: a number or structure without padding ([`Pod`]), [`In`] or [`Out`].
pub trait Parameter {
    /// Value that the access function receives: the value itself, or the number of elements of a buffer.
    type Stated: Copy;
    /// Size of a buffer's element. `None` for a value.
    const ELEMENT: Option<usize>;
    /// Size of the parameter in bytes.
    const BYTES: usize;
}

impl<T: Pod> Parameter for T {
    type Stated = T;
    const ELEMENT: Option<usize> = None;
    const BYTES: usize = size_of::<T>();
}

impl<T: Pod> Parameter for In<T> {
    type Stated = usize;
    const ELEMENT: Option<usize> = Some(size_of::<T>());
    const BYTES: usize = size_of::<u64>();
}

impl<T: Pod> Parameter for Out<T> {
    type Stated = usize;
    const ELEMENT: Option<usize> = Some(size_of::<T>());
    const BYTES: usize = size_of::<u64>();
}

/// Arguments of a launch that [`Argument::arrange`] appends to.
#[derive(Debug, Default)]
pub struct Arranged<'a> {
    packed: Packed<'a>,
    /// Index of the parameter and element size, for each buffer.
    buffers: Vec<(usize, usize)>,
}

impl<'a> Arranged<'a> {
    fn value<T: Pod>(&mut self, value: T) -> T {
        self.packed.value(value);
        value
    }

    fn buffer<T>(&mut self, operand: Operand<'a>) -> usize {
        self.buffers.push((self.packed.passed().len(), size_of::<T>()));
        self.packed.buffer(operand);
        operand.bytes().checked_div(size_of::<T>()).unwrap_or(0)
    }
}

/// An argument for a parameter of type `P`.
pub trait Argument<'a, P: Parameter> {
    /// Appends the argument to a launch, and returns the value that the access function receives.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for an operand that is not aligned to the parameter's elements, or that may not be written.
    fn arrange(self, to: &mut Arranged<'a>) -> Result<P::Stated>;
}

impl<T: Pod> Argument<'_, T> for T {
    fn arrange(self, to: &mut Arranged<'_>) -> Result<T> {
        Ok(to.value(self))
    }
}

impl<'a, T: Pod> Argument<'a, In<T>> for &'a DeviceBuffer<T> {
    fn arrange(self, to: &mut Arranged<'a>) -> Result<usize> {
        Ok(to.buffer::<T>(self.reading()))
    }
}

impl<'a, T: Pod> Argument<'a, In<T>> for &'a Frozen<T> {
    fn arrange(self, to: &mut Arranged<'a>) -> Result<usize> {
        Ok(to.buffer::<T>(self.reading()))
    }
}

impl<'a, T: Pod> Argument<'a, Out<T>> for &'a mut DeviceBuffer<T> {
    fn arrange(self, to: &mut Arranged<'a>) -> Result<usize> {
        Ok(to.buffer::<T>(self.writing()))
    }
}

impl<'a, T: Pod> Argument<'a, In<T>> for Operand<'a> {
    fn arrange(self, to: &mut Arranged<'a>) -> Result<usize> {
        aligned::<T>(&self)?;
        Ok(to.buffer::<T>(self))
    }
}

impl<'a, T: Pod> Argument<'a, Out<T>> for Operand<'a> {
    fn arrange(self, to: &mut Arranged<'a>) -> Result<usize> {
        aligned::<T>(&self)?;
        self.expect("operand", 0, true)?;
        Ok(to.buffer::<T>(self))
    }
}

fn aligned<T>(operand: &Operand<'_>) -> Result<()> {
    if operand.address().is_aligned_to(align_of::<T>()) {
        return Ok(());
    }
    let reason = format!(
        "begins at {:#x}, and elements need {}",
        operand.address(),
        align_of::<T>()
    );
    Err(Error::argument("operand", reason))
}

/// Types of a kernel's parameters: a tuple of up to 12 [`Parameter`]s, such as `(u32, f32, In<f32>, Out<f32>)`.
pub trait Signature {
    /// Values that the access function receives: a tuple of each parameter's [`Stated`](Parameter::Stated).
    type Stated: Copy;
    /// Number of parameters that are buffers.
    const BUFFERS: usize;
    /// Size of each parameter, and true if it is a buffer.
    fn parameters() -> Vec<(usize, bool)>;
}

/// Arguments for the parameters of `S`: a tuple of as many [`Argument`]s.
pub trait ArgumentsFor<'a, S: Signature> {
    /// Appends the arguments to a launch, and returns the values that the access function receives.
    ///
    /// # Errors
    ///
    /// The errors of [`Argument::arrange`].
    fn arrange(self, to: &mut Arranged<'a>) -> Result<S::Stated>;
}

macro_rules! tuples {
    ($(($($parameter:ident $argument:ident $index:tt),*);)*) => {$(
        impl<$($parameter: Parameter),*> Signature for ($($parameter,)*) {
            type Stated = ($($parameter::Stated,)*);
            const BUFFERS: usize = 0 $(+ $parameter::ELEMENT.is_some() as usize)*;

            fn parameters() -> Vec<(usize, bool)> {
                vec![$(($parameter::BYTES, $parameter::ELEMENT.is_some())),*]
            }
        }

        impl<'a, $($parameter: Parameter, $argument: Argument<'a, $parameter>),*>
            ArgumentsFor<'a, ($($parameter,)*)> for ($($argument,)*)
        {
            fn arrange(self, to: &mut Arranged<'a>) -> Result<($($parameter::Stated,)*)> {
                Ok(($(self.$index.arrange(to)?,)*))
            }
        }
    )*};
}

tuples! {
    (P0 A0 0);
    (P0 A0 0, P1 A1 1);
    (P0 A0 0, P1 A1 1, P2 A2 2);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10);
    (P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10, P11 A11 11);
}

/// A statement of accesses, which lists the number of elements of each buffer.
type Accesses<S> = dyn Fn(<S as Signature>::Stated, &mut Vec<usize>) + Send + Sync;

/// A kernel with typed parameters, whose launches are checked and safe. Created by [`Function::typed`]. Cheap to clone.
pub struct TypedFunction<S: Signature> {
    function: Function,
    /// Size of each parameter, and true if it is a buffer.
    parameters: Arc<[(usize, bool)]>,
    accesses: Arc<Accesses<S>>,
}

impl Function {
    /// Adds the types of the parameters, and a function that states the kernel's accesses. `accesses` receives the arguments (the number of
    /// elements for a buffer). It returns, for each buffer in order, how many leading elements the kernel may access. A launch with a
    /// shorter buffer is an error.
    ///
    /// ```no_run
    /// # use hip_safe::{In, Launch, Module, Out, Result, Stream};
    /// # fn example(stream: &Stream, module: &Module) -> Result<()> {
    /// let saxpy = module.function("saxpy")?; // void saxpy(unsigned n, float a, const float* x, float* y)
    /// // SAFETY: the kernel has these parameters, reads n elements of x and writes n of y.
    /// let saxpy = unsafe { saxpy.typed::<(u32, f32, In<f32>, Out<f32>), 2>(|(n, ..)| [n as usize; 2]) }?;
    /// let x = stream.upload(&[1.0f32; 1000])?;
    /// let mut y = stream.zeroed::<f32>(1000)?;
    /// saxpy.launch(stream, Launch::for_elements(1000), (1000, 2.0, &x, &mut y))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// The kernel must have the parameters of `S`. With any arguments and geometry, it must only access LDS, its own scratch, the module's
    /// globals, and as many elements of each buffer as `accesses` returns. It must only write elements of [`Out`].
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] if the code object declares other parameters.
    pub unsafe fn typed<S: Signature, const N: usize>(
        self,
        accesses: impl Fn(S::Stated) -> [usize; N] + Send + Sync + 'static,
    ) -> Result<TypedFunction<S>> {
        const {
            assert!(
                N == S::BUFFERS,
                "a number of elements for each buffer of the signature"
            );
        }
        let parameters = S::parameters();
        let passed = parameters.iter().map(|&(bytes, buffer)| Passed { bytes, buffer });
        self.check_parameters(passed)?;
        Ok(TypedFunction {
            function: self,
            parameters: parameters.into(),
            accesses: Arc::new(move |stated, elements| elements.extend(accesses(stated))),
        })
    }
}

impl<S: Signature> TypedFunction<S> {
    /// Returns the kernel without its types, for name, attributes and occupancy.
    #[must_use]
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Submits a launch. The arguments are copied. Buffers must belong to `stream`, or be [`Frozen`].
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] if the kernel would access more elements than a buffer has. [`Error::Argument`] if the geometry exceeds the
    /// device's, or a buffer belongs to a different stream or is read-only and would be written. [`Error::Device`] if the driver fails.
    pub fn launch<'a>(
        &self,
        stream: &Stream,
        launch: Launch,
        arguments: impl ArgumentsFor<'a, S>,
    ) -> Result<()> {
        self.function.prepare(stream, launch)?;
        let mut arranged = Arranged::default();
        let stated = arguments.arrange(&mut arranged)?;
        let mut elements = Vec::with_capacity(S::BUFFERS);
        (self.accesses)(stated, &mut elements);
        let Arranged { mut packed, buffers } = arranged;
        // `Arranged` is not exported, so that no implementation outside this crate can pass other arguments than it declares.
        let arranged = packed.passed().map(|passed| (passed.bytes, passed.buffer));
        if !arranged.eq(self.parameters.iter().copied()) || elements.len() != buffers.len() {
            return Err(self
                .function
                .wrong(None, "the arguments are not those of the signature"));
        }
        for ((&(parameter, size), &count), operand) in buffers.iter().zip(&elements).zip(&packed.operands) {
            if count
                .checked_mul(size)
                .is_none_or(|bytes| bytes > operand.bytes())
            {
                let has = operand.bytes().checked_div(size).unwrap_or(0);
                let reason = format!("the kernel would access {count} elements of a buffer of {has}");
                return Err(self.function.wrong(Some(parameter), reason));
            }
        }
        let mut parameters = packed.pointers();
        // SAFETY: the kernel has the parameters of `S`, and these are its arguments. It accesses as many elements of each buffer as were
        // just checked to exist.
        unsafe {
            self.function
                .submit(stream, launch, &mut parameters, &packed.operands)
        }
    }
}

impl<S: Signature> Clone for TypedFunction<S> {
    fn clone(&self) -> Self {
        Self {
            function: self.function.clone(),
            parameters: Arc::clone(&self.parameters),
            accesses: Arc::clone(&self.accesses),
        }
    }
}

impl<S: Signature> fmt::Debug for TypedFunction<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedFunction")
            .field(&self.function.name())
            .finish()
    }
}
