//! Derivatives of activation functions.

use hipvit_graph::op::{ActivationBackward, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for ActivationBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
