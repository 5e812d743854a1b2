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
mod activation_code;
mod all_reduce;
mod arguments;
mod augment;
mod batch_mat_mul;
mod builtin;
mod cache_folder;
pub(crate) mod call;
mod compiled;
mod concat;
pub(crate) mod custom;
mod device_code;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod device_tests;
mod elementwise;
mod exchange;
mod expand;
mod expand_as;
mod float8;
pub(crate) mod generated_call;
mod generated_source;
mod in_place;
mod jpeg;
mod launch;
mod library;
pub(crate) mod linear;
pub(crate) mod lower;
mod mat_mul;
mod paged_pattern_attention;
pub(crate) mod pattern_attention;
mod pattern_attention_backward;
mod permute;
mod prepend;
mod reshape;
mod resize;
mod select;
mod slice;
#[cfg(test)]
mod tests;
mod unit;

use std::borrow::Cow;

pub use all_reduce::AllReduceGroup;
pub(crate) use arguments::{KernelArguments, extent};
use arguments::{bytes, optional, visit_epilogue};
pub use attention::{AttentionSplitArgs, ScoreBias, Strided, is_fused, visibility};
pub use augment::{AugmentKernels, AugmentOperands, PixelMixture, PixelOp};
pub(crate) use augment::{ERASURE, PlanesKernels, PlanesOperands};
pub use bindings::*;
pub use cache_folder::cache_folder;
pub use cache_folder::kernel_cache;
pub use compiled::{CompileStats, compile_stats};
pub use int8_gemm::has_int8_gemm;
pub use jpeg::{DeviceJpeg, JpegKernels, samples as jpeg_samples};
use launch::Target;
pub use library::Kernels;
pub use patch_extract::PatchExtractChwArgs;
pub use resize::{DevicePass, ImagePass, ResizeKernels};
pub use sparse_gemm::{SparseOrder, pack_sparse, sparse_bytes, sparse_indices_at};
pub use unit::Unit;

pub use crate::error::KernelError;
use crate::error::Result;
use crate::hip::{Access, DeviceAddress, Launch, Operand, Stream};

macro_rules! kernel_call {
    (
        { $($module:ident { $($variant:ident($arguments:ident),)* })* }
        $($more:ident($more_arguments:ty),)*
    ) => {
        $(pub(crate) mod $module;)*

        /// A kernel with its arguments. Addresses are those of the device.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "a launch copies the arguments anyway")]
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
