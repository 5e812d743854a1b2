//! Activation functions.

mod functions;

use hipvit_graph::op::{Activation, OpError};

pub use self::functions::apply;
use super::rows::{block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for Activation {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        in_blocks(operands.source(0)?, results[0], block_len(1), |_, block| {
            apply(*self, block);
        });
        Ok(())
    }
}
