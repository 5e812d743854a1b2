//! Permutation of axes.

use hipvit_graph::op::{OpError, Permute};
use hipvit_graph::strided::View;

use super::{CpuOp, Operands, strided};

impl CpuOp for Permute {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let view = View::of(operands.batched_shape(0)?).permuted(&self.axes);
        strided::copy(operands.values(0)?, &view, results[0]);
        Ok(())
    }
}
