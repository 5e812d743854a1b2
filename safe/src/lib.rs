//! A safe layer over AMD's HIP runtime, hipRTC, rocBLAS, hipBLASLt, hipSPARSELt, MIOpen, RCCL and AMD SMI. It is for HIP what cudarc is
//! for CUDA.
//!
//! Nothing links against ROCm. The libraries are opened at run time, from ROCm or from another *provider* of the same C interface
//! ([providers](#providers)). A missing library is an error that names it. hipvit re-exports this crate as `hipvit::hip`. The crate is
//! independent of models.
//!
//! # Quick start
//!
//! A kernel is a string that hipRTC compiles. It is launched with several parameters, and its result is read back:
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
//! | type | purpose |
//! | --- | --- |
//! | [`Runtime`] | the provider's libraries, opened once |
//! | [`Device`], [`Properties`], [`Topology`], [`NumaNode`] | a GPU, its properties, and its links to the other GPUs |
//! | [`Stream`], [`StreamOptions`], [`Event`] | a queue of work; its priority and compute units; a point in it |
//! | [`DeviceBuffer`], [`Frozen`], [`Operand`] | device memory; memory that is read-only on every stream; a use of either |
//! | [`DeviceAddress`] | an address in device memory |
//! | [`PinnedBuffer`], [`PinnedPart`], [`Pending`], [`PinnedRing`], [`Uploads`] | host memory for asynchronous copies |
//! | [`Lent`], [`HostView`] | host memory that kernels access in place, for GPUs that share the host's memory |
//! | [`PoolStats`] | statistics of the caching pool behind all buffers |
//! | [`Code`], [`Module`], [`Global`] | device code: checked; loaded; a variable in it |
//! | [`Function`], [`TypedFunction`], [`Kernel`] | a kernel; with typed parameters; with one structure as its parameter |
//! | [`Rtc`], [`Program`], [`KernelCache`] | device code compiled at run time, and its disk cache |
//! | [`Graph`], [`Replay`] | captured work that is replayed |
//! | [`Blas`], [`BlasLt`], [`SparseLt`], [`Dnn`] | rocBLAS, hipBLASLt, hipSPARSELt, MIOpen, each on one stream |
//! | [`Comm`], [`Group`] | RCCL: communication between GPUs |
//! | [`NodeComm`] | hierarchical all-reduces between GPUs of several hosts |
//! | [`World`], [`Rendezvous`], [`Connection`] | the processes of a launcher, their rendezvous, and messages between them |
//! | [`Monitor`] | AMD SMI: temperature, power, clocks, utilisation, links |
//! | [`HardwareCounters`], [`Counted`] | rocprofiler-sdk: hardware counters of each kernel |
//!
//! Handles are `Send`, and `Sync` if the library's are. A clone of a `Runtime`, `Device`, `Stream`, `Event`, `Module`, kernel or `Comm`
//! refers to the same object, which lives as long as its last clone.
//!
//! # Streams and events
//!
//! Work is submitted to a [`Stream`] and runs later, in order. Streams are independent of each other and of HIP's default stream. An
//! [`Event`] is a point in a stream. Another stream or the host can [wait](Stream::wait) for it. [`Stream::record`] also takes a timestamp,
//! [`Stream::mark`] does not.
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
//! [`Device::stream_with`] creates streams with a priority, or for some of the compute units.
//!
//! # Memory
//!
//! A [`DeviceBuffer`] belongs to the stream that allocated it, and that stream orders all work on it. Its memory returns to the pool in the
//! order of the stream, so a buffer may be dropped while work on it is running. There are three ways to use it on another stream:
//!
//! - [`DeviceBuffer::move_to`] makes another stream its owner. It takes an event that was recorded after the last use.
//! - [`DeviceBuffer::freeze`] makes it read-only on every stream of the device.
//! - [`DeviceBuffer::copy_from_peer`] copies from any stream of any GPU, ordered on both sides.
//!
//! A [`PinnedBuffer`] is host memory for asynchronous copies. A copy takes it by value and returns a [`Pending`]; [`Pending::wait`] returns
//! the buffer. Forgetting a `Pending` leaks the memory, so the copy stays harmless. On a host with several NUMA nodes, pinned memory is on
//! the GPU's node, and [`Device::bind_thread`] binds the thread that uses it to this node. [`Stream::lend`] lets kernels access it in place.
//!
//! Allocations come from a caching pool on top of `hipMalloc`. [`Device::pool_stats`] returns its statistics, [`Device::trim`] frees its
//! unused memory, and [`Device::memory`] returns the GPU's free memory.
//!
//! # Kernels and `unsafe`
//!
//! Device memory is plain bytes of [`bytemuck::Pod`] types, and no Rust reference points to it. Rust's rules for references therefore hold
//! for any order of device work. A kernel must only access the memory that it was given. The compiler cannot check that, so the caller
//! guarantees it, once or for each launch:
//!
//! | | `unsafe` | checked at each launch |
//! | --- | --- | --- |
//! | [`Function::launch`] | each [`submit`](LaunchBuilder::submit): with these arguments, the kernel only accesses the given buffers | number, sizes and kinds of arguments; streams; geometry |
//! | [`Function::typed`] | once: it has these parameters, and accesses the elements of each buffer that a closure states | the buffers have as many elements; types; streams; geometry |
//! | [`Module::kernel`] | once: it takes this structure, and accesses the memory that [`Arguments::accesses`] states | the stated accesses are within the operands; streams; geometry |
//!
//! All three compare the arguments with the parameters that the code object declares: `amdhsa.kernels` in an AMD code object; number,
//! offsets and sizes in a cubin. A mismatch is an error that names the kernel and the parameter ([`Error::Parameter`]). If the code
//! declares nothing (PTX, a compressed bundle, a fat binary), this check is skipped, and only the caller's guarantee remains.
//!
//! [`Program::name`] instantiates templates: `saxpy<float>` is compiled, and found by this expression later. [`Module::global`] accesses
//! `__device__` and `__constant__` variables. [`Function::attributes`], [`Function::max_active_blocks`] and [`Function::suggested_block`]
//! return a kernel's resources and launch sizes that fill the device. [`KernelCache`] keeps compiled programs on disk.
//!
//! # Library handles
//!
//! [`Blas`], [`BlasLt`], [`SparseLt`] and [`Dnn`] are created from a stream, submit work to it, and check the sizes of their operands.
//! Matrices are row-major. No library is called before a [`Device`] proves that there is a GPU, because some libraries otherwise end the
//! process.
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
//! [`Graph`] captures [`Work`] once and replays it. A new replay is compared with the eager run byte for byte, because some ROCm releases
//! compute different results. If they differ, the work runs eagerly, and [`Graph::fallback`] returns the reason. A replay keeps the memory
//! that it uses alive.
//!
//! # Errors
//!
//! Every call returns a [`Result`]. An [`Error`] names the device, library, call, kernel or file, and the remedy if it is known. Work fails
//! after its submission: the call that waits for it returns the error. Nothing aborts, and drops never panic: the first error of a drop is
//! parked in the device, and the next call returns it.
//!
//! # Providers
//!
//! [`Runtime::open`] opens the libraries that `HIPVIT_PROVIDER` names (a path, `rocm`, `cuda`, `emu:gfx942`). Otherwise it opens ROCm's,
//! found by `ROCM_PATH`, `HIP_PATH`, `/opt/rocm` or the system's loader. The crate `hip-on-cuda` provides the interface on NVIDIA GPUs.
//! `hip-emu` executes AMD machine code without a GPU.
#![allow(unsafe_code)]

mod address;
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
mod pool;
mod rtc;
mod runtime;
mod status;
mod stream;
mod stream_failure;
mod versions;

pub use hipvit_sys::allocator;

pub use address::DeviceAddress;
pub use blas::{
    Blas, BlasLt, Epilogue, Gemm, Matmul, MatmulOperands, Matrix, Scales, Scaling, SparseGemm, SparseLt,
    SparseMatmul, SparseOperands,
};
pub use code::{Code, generic_target};
pub use comm::{
    Comm, CommOptions, Connection, Connections, Group, Mesh, NodeComm, Reduction, Rendezvous, SideStream,
    UniqueId, World,
};
pub use counters::{Counted, HardwareCounters, KernelCounts};
pub use device::Device;
pub use device::numa::NumaNode;
pub use device::properties::{PciAddress, Properties};
pub use device::topology::{Link, LinkType, Topology};
pub use dlpack::{DL_CUDA, DL_ROCM, DlpackTensor, DlpackView};
pub use dnn::{Attention, Convolution, ConvolutionShape, Dnn, MultiHeadAttention, Relayout, Rows};
pub use dtype::DType;
pub use error::{Error, Result};
pub use event::Event;
pub use graph::{Graph, Replay, Work, read_outputs};
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
pub use memory::foreign::ForeignMemory;
pub use memory::lent::{HostView, Lent};
pub use memory::operand::Operand;
pub use memory::pending::Pending;
pub use memory::pinned::{PinnedBuffer, PinnedPart, PinnedRing};
pub use memory::symmetric::SymmetricMemory;
pub use memory::uploads::Uploads;
pub use monitor::{Monitor, PcieLink, Readings};
pub use pool::PoolStats;
pub use rtc::{CachedKernel, KernelCache, Program, Rtc};
pub use runtime::{Library, Runtime};
pub use stream::{Stream, StreamOptions};
