//! Derivative of maxima of sliding windows.

use hipvit_graph::op::{MaxPoolBackward, OpError};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for MaxPoolBackward {
    /// Threads share the images: windows that overlap add to the same element, in their order.
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (&[_, height, width, channels], &[_, rows, columns, _]) =
            (operands.batched_shape(0)?, operands.batched_shape(1)?)
        else {
            return Err("takes images".into());
        };
        let (len, of_dy) = (height * width * channels, rows * columns * channels);
        let (x, dy) = (operands.values(0)?, operands.values(1)?);
        let images = results[0].par_chunks_exact_mut(len.max(1)).enumerate();
        images.for_each(|(image, dx)| {
            dx.fill(0.0);
            let (x, dy) = (&x[image * len..][..len], &dy[image * of_dy..][..of_dy]);
            self.add_image(x, dy, dx, [[height, width], [rows, columns]]);
        });
        Ok(())
    }
}
