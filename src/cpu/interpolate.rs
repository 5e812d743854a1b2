//! Interpolation of images to another size.

use hipvit_graph::op::{Interpolate, OpError};

use super::{CpuOp, Operands, by_reference};

impl CpuOp for Interpolate {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        by_reference(self, operands, results)
    }
}
