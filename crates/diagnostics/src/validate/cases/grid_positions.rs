//! Position embeddings resampled to the grid of each image, from finer and coarser tables.

use super::grid_mask::flexible;
use super::{AWKWARD, List, Scale, activation, parameter};
use hipvit::ops::{GridPositions, Op};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => add(list, [sizes.tokens, sizes.channels()], 16),
        Scale::Awkward => {
            for (a, side) in AWKWARD.iter().zip([1, 3, 16, 2, 7, 5]) {
                add(list, [a.tokens, a.channels], side);
            }
        }
        Scale::Heads => {}
    }
}

/// Adds a case with one image, because the graph of a single op has no batch of tokens besides images.
fn add(list: &mut List, [tokens, channels]: [usize; 2], side: usize) {
    let operands = vec![
        activation(&[1, tokens, channels]),
        parameter(&[side, side, channels]),
        flexible(1, tokens),
    ];
    list.push(Op::GridPositions(GridPositions), operands);
}
