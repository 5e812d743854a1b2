//! Normalisation of pixels, and the patch embedding as a convolution, as in a graph before the passes.

use super::{AWKWARD, List, NORMALIZE, Scale, image, image_size, parameter};
use hipvit::ops::{Op, PatchConv};
use hipvit::tensor::DType;

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => add(list, sizes.batch, sizes.tokens, [16, 16], 0, sizes.channels()),
        Scale::Awkward => {
            for a in &AWKWARD {
                add(list, a.batch, a.tokens, a.patch, 1, a.channels);
            }
        }
        Scale::Heads => {}
    }
}

fn add(list: &mut List, batch: usize, tokens: usize, patch: [usize; 2], rest: usize, channels: usize) {
    let [h, w] = image_size(tokens, patch, rest);
    list.push(
        Op::Normalize(NORMALIZE),
        vec![image(&[batch, h, w, 3], DType::U8)],
    );
    let x = image(&[batch, 3, h, w], DType::F32);
    let weight = parameter(&[channels, 3, patch[0], patch[1]]);
    let conv = PatchConv { patch, bias: true };
    list.push(Op::PatchConv(conv), vec![x, weight, parameter(&[channels])]);
}
