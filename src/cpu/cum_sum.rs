//! Running sums along an axis.

use hipvit_graph::op::{CumSum, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for CumSum {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
