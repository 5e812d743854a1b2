//! Factors of images.

use hipvit_graph::op::{OpError, ScaleImages};

use super::rows::in_blocks;
use super::{CpuOp, Operands};

impl CpuOp for ScaleImages {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[batch, columns] = operands.batched_shape(1)? else {
            return Err("the factors are no matrix".into());
        };
        let factors = operands.values(1)?;
        let image = results[0].len() / batch.max(1);
        in_blocks(operands.source(0)?, results[0], image.max(1), |start, block| {
            let factor = factors[start / image.max(1) * columns + self.column];
            block.iter_mut().for_each(|x| *x *= factor);
        });
        Ok(())
    }
}
