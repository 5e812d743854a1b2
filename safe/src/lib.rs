//! A safe layer over AMD's HIP runtime, hipRTC, rocBLAS, hipBLASLt, hipSPARSELt, MIOpen, RCCL and ROCm SMI: what cudarc is on CUDA.
//!
//! Nothing links against ROCm. The libraries are opened at run time, from ROCm or from another *provider* of the same C interface
//! ([providers](#providers)). A missing library is an error value that names it. hipvit uses this crate as `hipvit::hip`; it
//! knows nothing of models.
//!
//! # Quick start
//!
//! A kernel as a string, compiled by hipRTC, launched with several parameters, and its result read back:
//!
//! ```no_run
//! use hip_safe::{In, Launch, Module, Out, Result, Rtc, Runtime};
//!
//! const SOURCE: &str = r#"
//! extern "C" __global__ void saxpy(unsigned n, float a, const float* x, float* y) {
//!     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//!     if (i < n) y[i] = a * x[i] + y[i];
//! }
//! "#;
//!
//! fn main() -> Result<()> {
//!     let device = Runtime::open()?.device(0)?;
//!     let stream = device.stream()?;
//!     let module = Module::load(&device, Rtc::new(&device)?.program("saxpy.hip", SOURCE).compile()?)?;
//!
//!     // SAFETY: the kernel has these parameters, reads n elements of x, and writes n of y.
//!     let saxpy = unsafe {
//!         module.function("saxpy")?.typed::<(u32, f32, In<f32>, Out<f32>), 2>(|(n, ..)| [n as usize; 2])
//!     }?;
//!
//!     let x = stream.upload(&[1.0f32; 1000])?;
//!     let mut y = stream.zeroed::<f32>(1000)?;
//!     saxpy.launch(&stream, Launch::for_elements(1000), (1000, 2.0, &x, &mut y))?;
//!     assert_eq!(y.read()?, [2.0; 1000]);
//!     Ok(())
//! }
//! ```
//!
//! # Types
//!
//! | type | what it is |
//! | --- | --- |
//! | [`Runtime`] | the provider's libraries, opened once |
//! | [`Device`], [`Properties`], [`Topology`], [`NumaNode`] | a GPU, what it is, and how it is linked to the others |
//! | [`Stream`], [`StreamOptions`], [`Event`] | a queue of work; its priority and compute units; a point in it |
//! | [`DeviceBuffer`], [`Frozen`], [`Operand`] | device memory; the same, read-only on every stream; a use of either |
//! | [`PinnedBuffer`], [`PinnedPart`], [`Pending`], [`PinnedRing`], [`Uploads`] | host memory that the device copies from and to while the host goes on |
//! | [`PoolStats`] | what the caching pool behind every buffer holds |
//! | [`Code`], [`Module`], [`Global`] | device code: checked; loaded; a variable in it |
//! | [`Function`], [`TypedFunction`], [`Kernel`] | a kernel; with the types of its parameters; with one structure |
//! | [`Rtc`], [`Program`], [`KernelCache`] | device code compiled at run time; what of it is kept on disk |
//! | [`Graph`], [`Replay`] | captured work that is replayed |
//! | [`Blas`], [`BlasLt`], [`SparseLt`], [`Dnn`] | rocBLAS, hipBLASLt, hipSPARSELt, MIOpen, each on one stream |
//! | [`Comm`], [`Group`] | RCCL: communication between GPUs |
//! | [`NodeComm`] | the same between GPUs of several hosts, all-reduces within each host first |
//! | [`World`], [`Rendezvous`], [`Connection`] | the processes that a launcher has started, how they find each other, and messages between them |
//! | [`Monitor`] | ROCm SMI: temperature, power, clocks, utilisation, links |
//! | [`HardwareCounters`], [`Counted`] | rocprofiler-sdk: hardware counters of each kernel |
//!
//! Handles are `Send`, and `Sync` where the library's are. Cloning one of `Runtime`, `Device`, `Stream`, `Event`, `Module`,
//! a kernel or `Comm` gives the same object again, which lives as long as its last clone.
//!
//! # Streams and events
//!
//! Work is submitted to a [`Stream`] and runs later, in order. Streams are independent of each other and of HIP's default stream.
//! An [`Event`] is a point in a stream. Another stream can [wait](Stream::wait) for it, and so can the host. [`Stream::record`]
//! also takes the time, [`Stream::mark`] does not.
//!
//! ```no_run
//! # fn main() -> hip_safe::Result<()> {
//! # let stream = hip_safe::Runtime::open()?.device(0)?.stream()?;
//! let mut buffer = stream.allocate::<f32>(1 << 20)?;
//! let start = stream.record()?;
//! buffer.fill(0)?;
//! println!("{:?} on the device", stream.record()?.since(&start)?);
//! # Ok(())
//! # }
//! ```
//!
//! [`Device::stream_with`] makes streams with a priority, or for some of the compute units.
//!
//! # Memory
//!
//! A [`DeviceBuffer`] belongs to the stream that allocated it. That stream orders all work on it. Its memory goes back to the
//! pool in the stream's order, so that it may be dropped while work on it is under way. Three ways lead to another stream:
//!
//! - [`DeviceBuffer::move_to`] makes another stream its owner, and takes an event that was recorded after its last use;
//! - [`DeviceBuffer::freeze`] makes it read-only on every stream of the device;
//! - [`DeviceBuffer::copy_from_peer`] copies from any stream of any GPU, ordered on both sides.
//!
//! Host memory that the device reads or writes while the host continues is a [`PinnedBuffer`]. A copy takes it by value and gives
//! a [`Pending`]; [`Pending::wait`] gives it back. A forgotten `Pending` leaks the memory, and the copy stays harmless. On a host
//! with several NUMA nodes pinned memory is on the GPU's node; [`Device::bind_thread`] puts the thread that uses it there too.
//!
//! Allocations come from a caching pool on `hipMalloc`: [`Device::pool_stats`] shows it, [`Device::trim`] empties it.
//! [`Device::memory`] says how many bytes the GPU has free.
//!
//! # Kernels, and what is `unsafe`
//!
//! Device memory is plain bytes of [`bytemuck::Pod`] types, to which no Rust reference ever points. So Rust's rules for
//! references hold in whatever order device work runs. A kernel must access only the memory that it was given. The compiler
//! cannot see that, so the caller vouches for it, once or at each launch:
//!
//! | | `unsafe` | checked at each launch |
//! | --- | --- | --- |
//! | [`Function::launch`] | each [`submit`](LaunchBuilder::submit): with these arguments, the kernel accesses only the buffers given | number, sizes and kinds of arguments; streams; geometry |
//! | [`Function::typed`] | once: it has these parameters, and accesses of each buffer the elements that a closure states | the buffers have as many elements; types; streams; geometry |
//! | [`Module::kernel`] | once: it takes this structure, and accesses what [`Arguments::accesses`] states | what it states lies in the operands; streams; geometry |
//!
//! All three compare the arguments with the parameters that the code object declares: `amdhsa.kernels` in an AMD code object;
//! number, offsets and sizes in a cubin. A mismatch is an error that names the kernel and the parameter ([`Error::Parameter`]).
//! If the code declares nothing (PTX, a compressed bundle, a fat binary), that check is left out, and the promise alone holds.
//!
//! [`Program::name`] instantiates templates: `saxpy<float>` is compiled and later found by that expression.
//! [`Module::global`] reads and writes `__device__` and `__constant__` variables. [`Function::attributes`],
//! [`Function::max_active_blocks`] and [`Function::suggested_block`] say what a kernel takes, and how to fill the device
//! with it. [`KernelCache`] keeps compiled programs on disk.
//!
//! # Library handles
//!
//! [`Blas`], [`BlasLt`], [`SparseLt`] and [`Dnn`] are made of a stream, submit to it, and check their operands' sizes before the library
//! sees them. Matrices are row-major. No library is called before a [`Device`] proves that there is a GPU, as some end the
//! process where there is none.
//!
//! ```no_run
//! use hip_safe::{Blas, DType, Gemm};
//!
//! # fn main() -> hip_safe::Result<()> {
//! # let stream = hip_safe::Runtime::open()?.device(0)?.stream()?;
//! let (a, b) = (stream.upload(&[1.0f32; 64 * 32])?, stream.upload(&[2.0f32; 32 * 16])?);
//! let mut c = stream.zeroed::<f32>(64 * 16)?;
//! let gemm = Gemm::new(64, 16, 32, DType::F32); // C is 64×16, A 64×32, B 32×16
//! Blas::new(&stream)?.gemm(&gemm, a.reading(), b.reading(), c.writing())?;
//! assert_eq!(c.read()?, [64.0; 64 * 16]);
//! # Ok(())
//! # }
//! ```
//!
//! # Graphs
//!
//! [`Graph`] captures [`Work`] once and replays it. A replay is compared with the eager run, byte for byte, when it is made,
//! because some ROCm releases compute a different result. If it differs, the work runs eagerly, and [`Graph::fallback`] says why.
//! A replay keeps the memory that it uses.
//!
//! # Errors
//!
//! Every call returns [`Result`]; an [`Error`] names the device, library, call, kernel or file, and where it can, what to
//! do. Work fails later than it is submitted: what it failed with comes from the call that waits for it. Nothing aborts,
//! and dropping never panics: the first error of a drop is parked in the device, and the next call returns it.
//!
//! # Providers
//!
//! [`Runtime::open`] takes the libraries that `HIPVIT_PROVIDER` names (a path, `rocm`, `cuda`, `emu:gfx942`), else ROCm's,
//! where `ROCM_PATH`, `HIP_PATH`, `/opt/rocm` or the system's loader finds them. On an NVIDIA GPU the crate `hip-on-cuda`
//! gives the same interface, and without a GPU `hip-emu` executes AMD machine code.
#![allow(unsafe_code)]

mod blas;
mod code;
mod comm;
mod counters;
mod device;
mod dlpack;
mod dnn;
mod dtype;
mod error;
mod event;
mod graph;
mod host;
mod kernel;
mod libraries;
mod markers;
mod memory;
mod monitor;
mod rtc;
mod runtime;
mod status;
mod stream;
mod stream_failure;
mod versions;

#[doc(hidden)]
pub use hipvit_sys::allocator;

pub use blas::{
    Blas, BlasLt, Epilogue, Gemm, Matmul, MatmulOperands, Matrix, Scales, Scaling, SparseGemm, SparseLt,
    SparseMatmul, SparseOperands,
};
pub use code::Code;
pub use comm::{
    Comm, CommOptions, Connection, Connections, Group, NodeComm, Reduction, Rendezvous, UniqueId, World,
};
pub use counters::{Counted, HardwareCounters, KernelCounts};
pub use device::Device;
pub use device::numa::NumaNode;
pub use device::properties::{PciAddress, Properties};
pub use device::topology::{Link, LinkType, Topology};
pub use dlpack::{DL_CUDA, DL_ROCM, DlpackTensor, DlpackView};
pub use dnn::{Attention, Convolution, Dnn, MultiHeadAttention, PatchConvolution, Relayout, Rows};
pub use dtype::DType;
pub use error::{Error, Result};
pub use event::Event;
pub use graph::{Graph, Replay, Work};
pub use host::peak_rss;
pub use kernel::arguments::{Access, Arguments, Kernel};
pub use kernel::attributes::{Attributes, SuggestedBlock};
pub use kernel::builder::LaunchBuilder;
pub use kernel::function::Function;
pub use kernel::global::Global;
pub use kernel::launch::Launch;
pub use kernel::module::Module;
pub use kernel::typed::{Argument, ArgumentsFor, In, Out, Parameter, Signature, TypedFunction};
pub use markers::Markers;
pub use memory::buffer::{DeviceBuffer, Frozen};
pub use memory::cache::PoolStats;
pub use memory::foreign::ForeignMemory;
pub use memory::operand::Operand;
pub use memory::pending::Pending;
pub use memory::pinned::{PinnedBuffer, PinnedPart, PinnedRing};
pub use memory::symmetric::SymmetricMemory;
pub use memory::uploads::Uploads;
pub use monitor::{Monitor, PcieLink, Readings};
pub use rtc::{KernelCache, Program, Rtc};
pub use runtime::{Library, Runtime};
pub use stream::{Stream, StreamOptions};
