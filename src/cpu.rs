//! Ops on the CPU, one file per op: its kernel, and the `CpuOp` that passes the operands to it. Activations are f32 in memory.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
#[path = "../tests/support/amx_emulation.rs"]
mod amx_emulation;
#[cfg(target_arch = "x86_64")]
pub mod bf16;
mod by_reference;
mod constants;
mod cpu_op;
pub(crate) mod gemm;
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
pub(crate) mod rows;
mod strided;
pub mod tail;

use hipvit_graph::for_each_op;
use hipvit_graph::op::{Op, OpError};

use self::by_reference::by_reference;
pub(crate) use self::constants::{Constants, Form, States, initial_states};
pub(crate) use self::cpu_op::CpuOp;
pub(crate) use self::operands::{Memory, Operands, range};
pub use self::prepack::constant_bytes;
use crate::tensor::DType;

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
