//! Repetition along axes by NumPy's rules of broadcasting.

use hipvit_graph::op::{Expand, OpError};
use hipvit_graph::strided::View;

use super::{CpuOp, Operands, strided};

impl CpuOp for Expand {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let view = View::of(operands.batched_shape(0)?).expanded(operands.result_shape(0));
        strided::copy(operands.values(0)?, &view, results[0]);
        Ok(())
    }
}
