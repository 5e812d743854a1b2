//! Position embeddings resampled to each image's grid: from tables finer and coarser than the grids.

use super::grid_mask::flexible;
use super::{AWKWARD, List, Scale, activation, parameter};
use crate::ops::Op;

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => add(list, [sizes.batch, sizes.tokens, sizes.channels()], 16),
        Scale::Awkward => {
            for (a, side) in AWKWARD.iter().zip([1, 3, 16, 2, 7, 5]) {
                add(list, [a.batch + 2, a.tokens, a.channels], side);
            }
        }
        Scale::Heads => {}
    }
}

fn add(list: &mut List, [batch, tokens, channels]: [usize; 3], side: usize) {
    let operands = vec![
        activation(&[batch, tokens, channels]),
        parameter(&[side, side, channels]),
        flexible(batch, tokens),
    ];
    list.push(Op::GridPositions, operands);
}
