//! Repetition along axes by NumPy's rules of broadcasting.

use hipvit_graph::op::{Expand, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Expand {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
