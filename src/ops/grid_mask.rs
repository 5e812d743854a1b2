//! Which of an image's tokens are patches of its own.

use super::{Shape, operands};
use crate::patch_grid::{self, PatchGrid};

/// Of an image `u8 [B,H,W,3]` as [`crate::patch_grid`] has it.
pub(super) fn shape(inputs: &[&[usize]]) -> Result<Shape, String> {
    let [image] = operands(inputs)?;
    let (batch, patches) = extents(image)?;
    Ok(vec![batch, patches])
}

/// Images, and patches of each at most.
pub(super) fn extents(image: &[usize]) -> Result<(usize, usize), String> {
    match *image {
        [batch, height, width, 3] if height > width && (height - 1).is_multiple_of(width.max(2)) => {
            Ok((batch, patch_grid::most_patches([height, width])))
        }
        _ => Err(format!(
            "the image has shape {image:?}, expected [B, P·p + 1, p, 3] of P patches"
        )),
    }
}

/// [`Op::GridMask`](crate::ops::Op::GridMask) of images of this height and width, into `out [B,N]`.
pub(crate) fn run(pixels: &[u8], size: [usize; 2], out: &mut [f32]) -> Result<(), String> {
    let patches = patch_grid::most_patches(size).max(1);
    let images = pixels.chunks_exact((size[0] * size[1] * 3).max(1));
    for (out, image) in out.chunks_exact_mut(patches).zip(images) {
        let grid = PatchGrid::read(image, size, patches).ok_or("the image is too short")?;
        let (own, rest) = out.split_at_mut(grid.patches());
        own.fill(1.0);
        rest.fill(0.0);
    }
    Ok(())
}
