//! Mask of the tokens that are patches of an image, not padding.

use super::operands::{exactly, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Operand, Scale, image};
use crate::dtype::DType;
use hipvit_image::patch_grid;

/// Key mask of [`Attention`](super::Attention) for images of any aspect ratio: `(pixels u8 [B,H,W,3]) → [B,P]`, 1 for the image's patches
/// and 0 for padding. On a GPU the elements are bytes for any dtype of the plan. See [`patch_grid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridMask;

/// Returns the number of images, and the maximum number of patches per image.
pub(super) fn extents(image: &[usize]) -> Result<(usize, usize), OpError> {
    match *image {
        [batch, height, width, 3] if height > width && (height - 1).is_multiple_of(width.max(2)) => {
            Ok((batch, patch_grid::most_patches([height, width])))
        }
        _ => Err(OpError::layout(
            "the image",
            image,
            "[B, P·p + 1, p, 3] of P patches",
        )),
    }
}

/// Returns rows and columns of image `b` of a u8 batch `[B,H,W,3]`, from the first four bytes of the image's last row. Limited to `tokens`
/// patches.
pub(super) fn grid<T: Real>(images: &Array<T>, b: usize, tokens: usize) -> [usize; 2] {
    let &[_, height, width, channels] = images.shape() else {
        return [1, 1];
    };
    let at = ((b + 1) * height - 1) * width * channels;
    let byte = |at: usize| images.values()[at].to_f64();
    let extent = |at: usize| (byte(at) + 256.0 * byte(at + 1)) as usize;
    let rows = extent(at).clamp(1, tokens);
    [rows, extent(at + 2).clamp(1, tokens / rows)]
}

impl Definition for GridMask {
    const NAME: &'static str = "grid_mask";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [image] = exactly(operands)?;
        let (batch, patches) = extents(image)?;
        one([batch, patches])
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let images = operands[0];
        let tokens = results[0].shape()[1];
        for b in 0..images.shape()[0] {
            let [rows, columns] = grid(images, b, tokens);
            for token in 0..tokens {
                let own = if token < rows * columns { T::ONE } else { T::ZERO };
                results[0].values_mut()[b * tokens + token] = own;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => add(cases, sizes.batch, sizes.tokens),
            Scale::Awkward => {
                for a in &AWKWARD {
                    add(cases, a.batch + 2, a.tokens);
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}

fn add(cases: &mut Cases<GridMask>, batch: usize, tokens: usize) {
    cases.push(GridMask, vec![flexible(batch, tokens)]);
}

/// Returns images of up to `patches` patches, in the format of [`patch_grid`].
pub(super) fn flexible(batch: usize, patches: usize) -> Operand {
    image(&[batch, patches * 2 + 1, 2, 3], DType::U8)
}
