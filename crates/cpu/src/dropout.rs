//! Dropout.

use hipvit_graph::op::{Dropout, OpError};

use super::rows::in_blocks;
use super::{CpuOp, Operands};

impl CpuOp for Dropout {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let keys = operands.values(1)?.as_chunks::<2>().0;
        let image = (results[0].len() / keys.len().max(1)).max(1);
        in_blocks(operands.source(0)?, results[0], image, |start, elements| {
            let keys = keys[start / image];
            for (block, elements) in elements.chunks_mut(4).enumerate() {
                for (x, factor) in elements.iter_mut().zip(self.factors(keys, block as u64)) {
                    *x = if factor == 0.0 { 0.0 } else { *x * factor };
                }
            }
        });
        Ok(())
    }
}
