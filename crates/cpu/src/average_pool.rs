//! Means of sliding windows over images, channels last.

use hipvit_graph::op::{AveragePool, OpError};

use super::max_pool::for_each_pixel;
use super::{CpuOp, Operands};

impl CpuOp for AveragePool {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[_, height, width, _] = operands.batched_shape(0)? else {
            return Err("takes images".into());
        };
        for_each_pixel(operands, self.windows(), results[0], |[row, column], taps, y| {
            let counted = self.counted(0, row, height) * self.counted(1, column, width);
            y.fill(0.0);
            taps(&mut |x| y.iter_mut().zip(x).for_each(|(y, x)| *y += x));
            let factor = 1.0 / counted as f32;
            y.iter_mut().for_each(|y| *y *= factor);
        })
    }
}
