//! Computes the ops of hipvit-graph on the CPU. Activations are f32 in memory.
//!
//! [`check`] tells whether an op has a kernel, [`Constants`] packs the weights of a graph, and [`run`] computes a step of a plan. hipvit's
//! `CpuExecutor` runs whole plans with them. Each op has a file, with its kernel and the `CpuOp` that passes the operands to it.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
#[path = "../tests/support/amx_emulation.rs"]
mod amx_emulation;
#[cfg(target_arch = "x86_64")]
pub mod bf16;
mod by_reference;
mod collectives;
mod constants;
mod cpu_op;
mod gemm;
pub mod int8;
mod moments;
mod momentum;
mod operands;
mod packed;
mod prepack;
pub mod prepacked;
mod products;
#[cfg(test)]
mod random;
pub mod rows;
mod strided;
pub mod tail;

use hipvit_graph::for_each_op;
use hipvit_graph::op::{Op, OpError};
use hipvit_graph::plan::{Plan, Step};
use hipvit_graph::tensor::{DType, Input};

use self::by_reference::by_reference;
pub use self::collectives::Collectives;
use self::constants::Form;
pub use self::constants::{Constants, States, initial_states};
use self::cpu_op::CpuOp;
pub use self::operands::range;
use self::operands::{Memory, Operands};
pub use self::prepack::constant_bytes;

macro_rules! dispatch {
    ($($module:ident: $Op:ident,)*) => {
        $(pub mod $module;)*

        impl CpuOp for Op {
            fn check(&self) -> Result<(), OpError> {
                match self {
                    $(Self::$Op(op) => op.check(),)*
                }
            }

            fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
                match self {
                    $(Self::$Op(op) => op.run(operands, results),)*
                }
            }

            fn constant_form(&self, index: usize, dtype: DType) -> Form {
                match self {
                    $(Self::$Op(op) => op.constant_form(index, dtype),)*
                }
            }
        }
    };
}
for_each_op!(dispatch);

/// Checks that the CPU has a kernel for an op, before anything runs.
///
/// # Errors
///
/// [`OpError`] if it has none, which is the case for some attributes and for [custom ops](custom) without a [`CpuKernel`](custom::CpuKernel).
pub fn check(op: &Op) -> Result<(), OpError> {
    CpuOp::check(op)
}

/// Computes a step of a plan in f32, in the rayon pool of the calling thread. `inputs` are those of the graph, in its order and with integers as
/// f32. `arena` has the plan's buffers. If the step [writes to](hipvit_graph::plan::Buffer::state) a state, `written` has the elements of that
/// state, and `states` does not.
///
/// # Errors
///
/// [`OpError`] if the operands do not fit the op, or if the plan belongs to another graph than the constants.
pub fn run(
    plan: &Plan,
    step: &Step,
    inputs: &[Input<'_>],
    constants: &Constants,
    states: &States,
    written: Option<&mut [f32]>,
    arena: &mut [f32],
) -> Result<(), OpError> {
    let mut memory = Memory::split(plan, step, inputs, constants, states, written, arena)?;
    plan.node(step).op.run(&memory.operands, &mut memory.results)
}
