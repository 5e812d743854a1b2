//! Running a model: executors take a graph, an input and memory, and give its outputs. The CPU's is here; each op's
//! kernel lies beside its shape rule in [`crate::ops`].

mod arena;
mod cpu;
mod step;

pub use crate::graph::Input;
pub use arena::Arena;
pub use cpu::{CpuExecutor, Observer};

#[cfg(test)]
mod tests;
