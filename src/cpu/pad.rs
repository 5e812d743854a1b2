//! Padding of a tensor.

use hipvit_graph::op::{OpError, Pad};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Pad {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
