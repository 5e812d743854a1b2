//! Which of an image's tokens are patches of its own.

use super::*;
use crate::patch_grid;

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
