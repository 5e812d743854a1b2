//! The crate's own kernels on the host's side. A kernel `<name>` is `hip/<name>.hip` with its header `hip/<name>.h`, and
//! here `<name>.rs`: the constructor of its arguments, its launch plan, and the memory that it reads and writes.
//!
//! `bindings.rs` holds the argument structures and tile constants, generated from the headers. `library.rs` finds the code
//! (embedded, or compiled at run time) and launches it. To add a kernel: header, kernel, and its file here, which also has the `Lower` of
//! the ops that it computes; then run `scripts/kernel-bindings`.
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

use crate::error::Result;
use crate::hip::{Access, Launch, Operand, Stream};
use crate::tensor::DType;

/// The arguments of one kernel of `hip/`, a structure of [`bindings`].
///
/// # Safety
///
/// The entry that [`entry`](Self::entry) names takes one parameter of this layout, and launched as
/// [`plan`](Self::plan) says it accesses no memory but what [`accesses`](Self::accesses) lists.
pub(crate) unsafe trait KernelArguments: Copy + Send + Sync + 'static {
    /// The kernel file, without its extension.
    const FILE: &'static str;

    /// The suffix of the module global `<entry>_<suffix>` (one u32) that the plan needs, as [`Target::tile`].
    const TILE: Option<&'static str> = None;

    /// What has to be compiled for these arguments.
    fn unit(&self) -> Result<Unit, String> {
        Ok(Unit::of(Self::FILE))
    }

    /// The entry's name without its dtype.
    fn entry(&self) -> Result<Cow<'static, str>, String> {
        Ok(Self::FILE.into())
    }

    /// The launch; sets what of the arguments depends on it.
    ///
    /// # Errors
    ///
    /// Why the arguments are refused, or why the device cannot launch it.
    fn plan(&mut self, target: &Target) -> Result<Launch, String>;

    /// Calls `visit` with each range of device memory that the kernel may access, for elements of `element` bytes.
    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access));
}

macro_rules! kernel_call {
    (
        { $($module:ident { $($variant:ident($arguments:ident),)* })* }
        $($more:ident($more_arguments:ty),)*
    ) => {
        $(pub(crate) mod $module;)*

        /// A kernel with its arguments, whose addresses are the device's.
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
            /// Submits the launch; it accesses no memory but `operands`.
            ///
            /// # Errors
            ///
            /// The driver refuses the launch, or an operand is too small or belongs to a different stream.
            pub fn launch(self, kernels: &Kernels, stream: &Stream, operands: &[Operand<'_>]) -> Result<()> {
                match self {
                    $($(Self::$variant(arguments) => kernels.launch(stream, arguments, operands),)*)*
                    $(Self::$more(arguments) => kernels.launch(stream, arguments, operands),)*
                }
            }

            /// The grid and block that the launch would have.
            ///
            /// # Errors
            ///
            /// As [`Kernels::geometry`].
            pub(crate) fn geometry(self, kernels: &Kernels) -> Result<Launch> {
                match self {
                    $($(Self::$variant(arguments) => kernels.geometry(arguments),)*)*
                    $(Self::$more(arguments) => kernels.geometry(arguments),)*
                }
            }

            /// What has to be compiled for it.
            ///
            /// # Errors
            ///
            /// Why no code takes the arguments.
            pub fn unit(&self) -> Result<Unit, String> {
                match self {
                    $($(Self::$variant(arguments) => arguments.unit(),)*)*
                    $(Self::$more(arguments) => arguments.unit(),)*
                }
            }

            /// The entry's name without its dtype.
            ///
            /// # Errors
            ///
            /// Why no entry takes the arguments.
            pub(crate) fn entry(&self) -> Result<Cow<'static, str>, String> {
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

/// The name of a kernel's entry for a dtype: `layer_norm_f16`.
fn entry(kernel: &str, dtype: DType) -> String {
    format!("{kernel}_{dtype}")
}

/// The bytes of a tensor of these extents whose elements have `element` bytes; saturates.
fn bytes(element: usize, extents: &[u32]) -> usize {
    let multiply = |bytes: usize, &extent: &u32| bytes.saturating_mul(extent as usize);
    extents.iter().fold(element, multiply)
}

/// The operands of a kernel that adds a bias `[channels]` and a residual to a matrix: `x`, `bias`, `residual`, `out`, whose elements have
/// `result` bytes.
fn visit_biased(
    [x, bias, residual, out]: [u64; 4],
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

/// An access to an operand that may be null: of no bytes then.
fn optional(access: Access) -> Access {
    let bytes = if access.address == 0 { 0 } else { access.bytes };
    Access { bytes, ..access }
}

/// An extent as the kernels count.
///
/// # Errors
///
/// It exceeds 32 bits.
pub(crate) fn extent(n: usize) -> Result<u32, String> {
    u32::try_from(n).map_err(|_| format!("an extent of {n} exceeds the 32 bits of a kernel's argument"))
}
