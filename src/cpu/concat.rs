//! Concatenation along an axis.

use hipvit_graph::op::{Concat, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Concat {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
