//! The builtin kernels, host side. A kernel `<name>` consists of `hip/<name>.hip`, its header `hip/<name>.h`, and `<name>.rs` here: the
//! constructor of its arguments, its launch plan, and its memory accesses.
//!
//! `bindings.rs` has the argument structures and tile constants, generated from the headers. `library.rs` finds the code (embedded, or
//! compiled at run time) and launches it. To add a kernel, write its header, its device code, and its file here, which also has the `Lower`
//! of the ops that it computes. Then run `scripts/kernel-bindings`.
#![allow(
    unsafe_code,
    reason = "each kernel's `unsafe impl` states what its device code accesses"
)]

#[rustfmt::skip]
#[allow(dead_code, reason = "some constants are the device code's alone")]
mod bindings;
mod all_reduce;
mod cache_folder;
mod concat_channels;
pub(crate) mod custom;
mod device_code;
#[cfg(test)]
mod device_tests;
mod float8;
mod launch;
mod library;
pub(crate) mod linear;
pub(crate) mod lower;
mod resize;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use all_reduce::AllReduceGroup;
pub use attention::{AttentionSplitArgs, ScoreBias, Strided, is_fused, visibility};
pub use bindings::*;
pub use cache_folder::cache_folder;
pub use cache_folder::kernel_cache;
pub use int8_gemm::has_int8_gemm;
use launch::Target;
pub use library::{Kernels, Unit};
pub use patch_extract::PatchExtractChwArgs;
pub use resize::{DevicePass, ImagePass, ResizeKernels};
pub use sparse_gemm::{SparseOrder, pack_sparse, sparse_bytes, sparse_indices_at};

pub use crate::error::KernelError;
use crate::error::Result;
use crate::hip::{Access, DeviceAddress, Launch, Operand, Stream};
use crate::tensor::DType;

/// Arguments of a kernel in `hip/`, a structure of [`bindings`].
///
/// # Safety
///
/// The entry named by [`entry`](Self::entry) must take one parameter of this layout. Launched with the geometry of [`plan`](Self::plan), it
/// must only access memory that [`accesses`](Self::accesses) lists.
pub(crate) unsafe trait KernelArguments: Copy + Send + Sync + 'static {
    /// The kernel file, without its extension.
    const FILE: &'static str;

    /// Suffix of the module global `<entry>_<suffix>` (a u32) that the plan needs as [`Target::tile`].
    const TILE: Option<&'static str> = None;

    /// Returns the unit to compile for these arguments.
    fn unit(&self) -> Result<Unit, KernelError> {
        Ok(Unit::of(Self::FILE))
    }

    /// Returns the name of the entry without its dtype.
    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(Self::FILE.into())
    }

    /// Returns the launch, and sets the arguments that depend on it.
    ///
    /// # Errors
    ///
    /// The reason why the arguments are invalid or the device cannot launch the kernel.
    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError>;

    /// Calls `visit` with each range of device memory that the kernel may access, for elements of `element` bytes.
    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access));
}

macro_rules! kernel_call {
    (
        { $($module:ident { $($variant:ident($arguments:ident),)* })* }
        $($more:ident($more_arguments:ty),)*
    ) => {
        $(pub(crate) mod $module;)*

        /// A kernel with its arguments. Addresses are those of the device.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum KernelCall {
            $($(#[doc = concat!("Kernel with [`", stringify!($arguments), "`](bindings::", stringify!($arguments), ").")]
            $variant(bindings::$arguments),)*)*
            $(#[doc = concat!("Kernel with [`", stringify!($more_arguments), "`].")]
            $more($more_arguments),)*
        }

        $($(impl From<bindings::$arguments> for KernelCall {
            fn from(arguments: bindings::$arguments) -> Self {
                Self::$variant(arguments)
            }
        })*)*
        $(impl From<$more_arguments> for KernelCall {
            fn from(arguments: $more_arguments) -> Self {
                Self::$more(arguments)
            }
        })*

        impl KernelCall {
            /// Submits the launch, which only accesses the memory of `operands`.
            ///
            /// # Errors
            ///
            /// The driver fails, or an operand is too small or belongs to a different stream.
            pub fn launch(self, kernels: &Kernels, stream: &Stream, operands: &[Operand<'_>]) -> Result<()> {
                match self {
                    $($(Self::$variant(arguments) => kernels.launch(stream, arguments, operands),)*)*
                    $(Self::$more(arguments) => kernels.launch(stream, arguments, operands),)*
                }
            }

            /// Returns the grid and block of the launch.
            ///
            /// # Errors
            ///
            /// The errors of [`Kernels::geometry`].
            pub(crate) fn geometry(self, kernels: &Kernels) -> Result<Launch> {
                match self {
                    $($(Self::$variant(arguments) => kernels.geometry(arguments),)*)*
                    $(Self::$more(arguments) => kernels.geometry(arguments),)*
                }
            }

            /// Returns the unit to compile.
            ///
            /// # Errors
            ///
            /// The reason why no code supports the arguments.
            pub fn unit(&self) -> Result<Unit, KernelError> {
                match self {
                    $($(Self::$variant(arguments) => arguments.unit(),)*)*
                    $(Self::$more(arguments) => arguments.unit(),)*
                }
            }

            /// Returns the name of the entry without its dtype.
            ///
            /// # Errors
            ///
            /// The reason why no entry supports the arguments.
            pub(crate) fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
                match self {
                    $($(Self::$variant(arguments) => arguments.entry(),)*)*
                    $(Self::$more(arguments) => arguments.entry(),)*
                }
            }

            /// See [`KernelArguments::accesses`].
            #[cfg(test)]
            pub(crate) fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
                match self {
                    $($(Self::$variant(arguments) => arguments.accesses(element, visit),)*)*
                    $(Self::$more(arguments) => arguments.accesses(element, visit),)*
                }
            }
        }
    };
}
bindings::kernel_list!(
    kernel_call,
    AttentionSplit(AttentionSplitArgs),
    PatchExtractChw(PatchExtractChwArgs)
);

/// Returns the name of a kernel's entry for a dtype, such as `layer_norm_f16`.
fn entry(kernel: &str, dtype: DType) -> String {
    format!("{kernel}_{dtype}")
}

/// Returns the bytes of a tensor of these extents with elements of `element` bytes. Saturates.
fn bytes(element: usize, extents: &[u32]) -> usize {
    let multiply = |bytes: usize, &extent: &u32| bytes.saturating_mul(extent as usize);
    extents.iter().fold(element, multiply)
}

/// Visits the operands of a kernel that adds a bias `[channels]` and a residual to a matrix: `x`, `bias`, `residual`, and `out` with
/// elements of `result` bytes.
fn visit_biased(
    [x, bias, residual, out]: [DeviceAddress; 4],
    [element, result]: [usize; 2],
    matrix: [u32; 2],
    visit: &mut dyn FnMut(Access),
) {
    let (all, row) = (bytes(element, &matrix), bytes(element, &matrix[1..]));
    visit(Access::read("x", x, all));
    visit(optional(Access::read("bias", bias, row)));
    visit(optional(Access::read("residual", residual, all)));
    visit(Access::write("out", out, bytes(result, &matrix)));
}

/// Returns an access to an operand that may be null, and then has 0 bytes.
fn optional(access: Access) -> Access {
    let bytes = if access.address.is_null() { 0 } else { access.bytes };
    Access { bytes, ..access }
}

/// Converts an extent to the kernels' type.
///
/// # Errors
///
/// [`KernelError::Extent`] if the extent exceeds 32 bits.
pub(crate) fn extent(n: usize) -> Result<u32, KernelError> {
    u32::try_from(n).map_err(|_| KernelError::Extent(n))
}
