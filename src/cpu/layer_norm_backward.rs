//! Derivative of layer normalisation.

use hipvit_graph::op::{LayerNormBackward, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for LayerNormBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
