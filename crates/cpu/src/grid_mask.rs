//! Mask of the tokens that are patches of an image, not padding.

use hipvit_graph::op::{GridMask, OpError};

use super::{CpuOp, Operands};
use hipvit_image::patch_grid::{self, PatchGrid};

impl CpuOp for GridMask {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (pixels, size) = operands.images(0)?;
        mask(pixels, size, results[0])?;
        Ok(())
    }
}

/// Writes the masks of images of this height and width into `out [B,N]`.
fn mask(pixels: &[u8], size: [usize; 2], out: &mut [f32]) -> Result<(), OpError> {
    let patches = patch_grid::most_patches(size).max(1);
    let images = pixels.chunks_exact((size[0] * size[1] * 3).max(1));
    for (out, image) in out.chunks_exact_mut(patches).zip(images) {
        let grid =
            PatchGrid::read(image, size, patches).ok_or_else(|| OpError::memory("the image is too short"))?;
        let (own, rest) = out.split_at_mut(grid.patches());
        own.fill(1.0);
        rest.fill(0.0);
    }
    Ok(())
}
