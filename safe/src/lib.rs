//! The fence: a safe layer over ROCm's C libraries, and the only room with `unsafe` in it.
//!
//! Below it is `hipvit-sys`, whose types never leave; above it are the executor and the command line. Any *provider*
//! of the C interface will do: AMD's libraries, or a stand-in that `HIPVIT_PROVIDER` names.
//!
//! | noun | what it is |
//! | --- | --- |
//! | [`Runtime`] | the provider's libraries, opened once |
//! | [`Device`], [`Properties`], [`Topology`] | a GPU, what it is, and how it is linked to the others |
//! | [`Stream`], [`Event`] | a queue of work; a point in it |
//! | [`DeviceBuffer`], [`Frozen`], [`Operand`] | device memory; the same, read-only on every stream; a use of either |
//! | [`PinnedBuffer`], [`Pending`], [`PinnedRing`] | host memory that the device copies from and to while the host goes on |
//! | [`PoolStats`] | what the caching pool behind every buffer holds |
//! | [`Code`], [`Module`], [`Kernel`] | device code: checked, loaded, launched |
//! | [`Rtc`], [`KernelCache`] | device code compiled at run time; what of it is kept on disk |
//! | [`Graph`], [`Replay`] | captured work that is replayed |
//! | [`Blas`], [`BlasLt`], [`Dnn`] | rocBLAS, hipBLASLt, MIOpen |
//!
//! # The contract
//!
//! - **Nothing aborts.** A missing library or function is an error value. `hipGetDeviceCount` is asked before anything
//!   else: some libraries end the process where there is no GPU, so that only a [`Device`], which proves that there is
//!   one, leads to them.
//! - **Device memory is plain bytes.** Its element types are [`bytemuck::Pod`], no Rust reference ever points to it, and
//!   so no order of device work can break Rust's rules for references. What could is the device writing to *host*
//!   memory, or reading host memory that is gone. Hence a copy takes the [`PinnedBuffer`] by value and gives a
//!   [`Pending`] for it; who forgets the `Pending` leaks the memory, and the copy stays harmless.
//! - **A buffer belongs to a stream.** Work on it is ordered by that stream, its memory goes back to the pool in the
//!   stream's order. Work on another stream takes an [`Event`]: [`DeviceBuffer::move_to`] wants one that was recorded
//!   after the buffer's last use, and a [`Frozen`] buffer carries its own.
//! - **A kernel is trusted once.** [`Module::kernel`] is `unsafe`: it promises that the device code takes these arguments
//!   and touches only what [`Arguments::accesses`] says. Each launch is then checked against the operands that it is
//!   given, and is safe.
//! - **Dropping never panics.** The first error of a drop is parked in the device, and the next call returns it.
//!
//! Handles are `Send` and `Sync`: HIP's functions may be called from any thread. Where the current device matters it is
//! set first, on the calling thread.
#![allow(unsafe_code)]

mod blas;
mod code;
mod device;
mod dnn;
mod dtype;
mod error;
mod event;
mod graph;
mod kernel;
mod memory;
mod rtc;
mod runtime;
mod status;
mod stream;

pub use blas::{Blas, BlasLt, Epilogue, Gemm, Matmul, MatmulOperands, Matrix, Scales};
pub use code::Code;
pub use device::Device;
pub use device::properties::{PciAddress, Properties};
pub use device::topology::{Link, LinkType, Topology};
pub use dnn::{Attention, Convolution, Dnn, MultiHeadAttention, PatchConvolution, Rows};
pub use dtype::DType;
pub use error::{Error, Result};
pub use event::Event;
pub use graph::{Graph, Replay, Work};
pub use kernel::arguments::{Access, Arguments, Kernel};
pub use kernel::attributes::{Attributes, SuggestedBlock};
pub use kernel::builder::LaunchBuilder;
pub use kernel::function::Function;
pub use kernel::global::Global;
pub use kernel::launch::Launch;
pub use kernel::module::Module;
pub use kernel::typed::{Argument, ArgumentsFor, In, Out, Parameter, Signature, TypedFunction};
pub use memory::buffer::{DeviceBuffer, Frozen};
pub use memory::cache::PoolStats;
pub use memory::operand::Operand;
pub use memory::pending::Pending;
pub use memory::pinned::{PinnedBuffer, PinnedRing};
pub use rtc::{KernelCache, Rtc};
pub use runtime::{Library, Runtime};
pub use stream::Stream;
