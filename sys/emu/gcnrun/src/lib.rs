#![doc = include_str!("../README.md")]

mod arch;
pub mod cache;
mod code;
mod decode;
mod disassembly;
mod fault;
mod interpreter;
mod isa;
mod launch;
mod line;
mod memory;
mod object;
mod observer;
mod operands;
mod order;
mod profile;
mod run;
mod space;
mod taint;
#[cfg(test)]
mod tests;
mod wave;

pub use fault::{Fault, FaultKind, Place};
pub use launch::{Checks, Launch, Order, Statistics};
pub use memory::{Allocation, Kind, Memory, MemoryError};
pub use object::{Argument, KernelInfo, LoadError, Program, Variable};
pub use profile::{Class, Latencies, LdsTraffic, Profile, Traffic};
pub use taint::{Carrier, Carriers, Step, Taint};
