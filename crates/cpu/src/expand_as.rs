//! Repetition over images, rows or groups of channels.

use hipvit_graph::op::{ExpandAs, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for ExpandAs {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
