//! Maxima of sliding windows over images.

use hipvit_graph::op::{MaxPool, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for MaxPool {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
