//! Expressions of operands, element by element.

use hipvit_graph::op::{Elementwise, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Elementwise {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
