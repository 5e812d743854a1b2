//! Executes the machine code of AMD GPUs on the CPU.

mod cache;
#[cfg(feature = "isa")]
mod decode;
mod disassembly;
mod fault;
#[cfg(feature = "isa")]
mod isa;
mod memory;
mod object;
#[cfg(feature = "isa")]
mod operands;
#[cfg(feature = "isa")]
mod run;
#[cfg(not(feature = "isa"))]
#[path = "run_pending.rs"]
mod run;
mod space;
mod wave;

pub use fault::{Fault, FaultKind, MemoryError, Place};
pub use memory::{Allocation, Kind, Memory};
pub use object::{Argument, KernelInfo, LoadError, Program, Variable};
pub use run::{Checks, Launch, Order, Statistics};
