//! Sums, means, extrema and norms along axes.

use hipvit_graph::op::{OpError, Reduce};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Reduce {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
