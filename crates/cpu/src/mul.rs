//! Elementwise multiplication.

use hipvit_graph::op::{Mul, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Mul {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
