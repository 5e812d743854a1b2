//! Token assembly: prefix, position, or both.

use super::{AWKWARD, List, Scale, activation, parameter};
use hipvit::ops::{Op, Prepend, Tokens};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => add(list, [sizes.batch, sizes.tokens, sizes.channels()]),
        Scale::Awkward => {
            for a in &AWKWARD {
                add(list, [a.batch, a.tokens, a.channels]);
            }
        }
        Scale::Heads => {}
    }
}

fn add(list: &mut List, [batch, tokens, channels]: [usize; 3]) {
    let x = || activation(&[batch, tokens, channels]);
    let prefix = |count| parameter(&[1, count, channels]);
    let position = || parameter(&[1, tokens, channels]);
    list.push(Op::Prepend(Prepend), vec![prefix(1), prefix(4), x()]);
    for (with_prefix, with_position) in [(true, true), (true, false), (false, true)] {
        let spec = Tokens {
            prefix: with_prefix,
            position: with_position,
        };
        let prefix = with_prefix.then(|| prefix(5));
        let operands = [Some(x()), prefix, with_position.then(position)];
        list.push(Op::Tokens(spec), operands.into_iter().flatten().collect());
    }
}
