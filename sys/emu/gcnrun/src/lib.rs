#![doc = include_str!("../README.md")]

pub mod cache;
mod decode;
mod disassembly;
mod fault;
mod isa;
mod memory;
mod object;
mod operands;
mod run;
mod space;
mod wave;

pub use fault::{Fault, FaultKind, MemoryError, Place};
pub use memory::{Allocation, Kind, Memory};
pub use object::{Argument, KernelInfo, LoadError, Program, Variable};
pub use run::{Checks, Launch, Order, Statistics};
