//! Slice of a tensor along one axis.

use hipvit_graph::op::{OpError, Slice};

use super::{CpuOp, Operands, strided};

impl CpuOp for Slice {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let view = self.view(operands.batched_shape(0)?);
        strided::copy(operands.values(0)?, &view, results[0]);
        Ok(())
    }
}
