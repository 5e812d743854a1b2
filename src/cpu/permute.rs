//! Permutation of axes.

use hipvit_graph::op::{OpError, Permute};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Permute {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
