//! Masks of the tokens that belong to an image, for images with different grids.

use super::{AWKWARD, List, Operand, Scale, image};
use hipvit::ops::{GridMask, Op};
use hipvit::tensor::DType;

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => add(list, sizes.batch, sizes.tokens),
        Scale::Awkward => {
            for a in &AWKWARD {
                add(list, a.batch + 2, a.tokens);
            }
        }
        Scale::Heads => {}
    }
}

fn add(list: &mut List, batch: usize, tokens: usize) {
    list.push(Op::GridMask(GridMask), vec![flexible(batch, tokens)]);
}

/// Images of up to `patches` patches, as [`hipvit::patch_grid`] encodes them.
pub(super) fn flexible(batch: usize, patches: usize) -> Operand {
    image(&[batch, patches * 2 + 1, 2, 3], DType::U8)
}
