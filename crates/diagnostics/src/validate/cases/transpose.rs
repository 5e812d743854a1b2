//! Transposition of tokens and channels: alone, scaled, with a residual, as a gate, and to or from padded
//! rows.

use super::{AWKWARD, List, Scale, activation, parameter};
use hipvit::ops::{Combine, Op, Transpose};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, every_form } => {
            forms(list, [sizes.batch, sizes.tokens, sizes.channels()], every_form);
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                forms(list, [a.batch, a.tokens, a.channels], true);
                forms(list, [a.batch, a.channels, a.tokens], true);
            }
        }
        Scale::Heads => {}
    }
    if list.is_micro() {
        // Whole tiles, and rows that do not begin at a multiple of a vector.
        forms(list, [2, 64, 128], true);
        forms(list, [3, 67, 3], true);
        forms(list, [2, 5, 130], true);
    }
}

/// Adds transpositions of `[batch, tokens, channels]`, and to and from rows padded to whole vectors.
/// `every_form` adds each combination of operands, inside and outside of the arena.
fn forms(list: &mut List, [batch, tokens, channels]: [usize; 3], every_form: bool) {
    let padded = tokens.next_multiple_of(8);
    sized(list, [batch, tokens, channels], [0, 0], every_form);
    if padded != tokens {
        sized(list, [batch, tokens, channels], [padded - tokens, 0], every_form);
        sized(list, [batch, channels, padded], [0, padded - tokens], every_form);
    }
}

fn sized(list: &mut List, [batch, tokens, channels]: [usize; 3], [pad, crop]: [usize; 2], every_form: bool) {
    for scale in [false, true] {
        for combine in [None, Some(Combine::Add), Some(Combine::Multiply)] {
            if scale && !every_form {
                continue;
            }
            let gamma = scale.then(|| parameter(&[tokens]));
            let y = combine.map(|_| activation(&[batch, channels - crop, tokens + pad]));
            let operands = [Some(activation(&[batch, tokens, channels])), gamma, y];
            let operands: Vec<_> = operands.into_iter().flatten().collect();
            let op = Op::Transpose(Transpose {
                scale,
                combine,
                pad,
                crop,
            });
            if every_form && combine.is_some() {
                list.push_in_arena(op.clone(), operands.clone());
            }
            list.push(op, operands);
        }
    }
}
