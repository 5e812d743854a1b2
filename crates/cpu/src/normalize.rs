//! Normalisation of pixels.

use hipvit_graph::op::{Normalize, OpError};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for Normalize {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (pixels, [height, width]) = operands.images(0)?;
        normalize(self, pixels, height * width, results[0]);
        Ok(())
    }
}

/// Normalises images with `plane` pixels.
fn normalize(spec: &Normalize, pixels: &[u8], plane: usize, out: &mut [f32]) {
    out.par_chunks_mut(plane.max(1))
        .enumerate()
        .for_each_item(|(i, out)| {
            let (image, c) = (i / 3, i % 3);
            let pixels = pixels[3 * plane * image..].chunks_exact(3);
            for (y, pixel) in out.iter_mut().zip(pixels) {
                *y = f32::from(pixel[c]) * spec.scale[c] + spec.shift[c];
            }
        });
}
