//! Pooling, and the concatenation of channels.

use super::{AWKWARD, List, Scale, activation};
use hipvit::ops::{ConcatChannels, Op, Pool};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => {
            let skip = usize::from(sizes.tokens > 1);
            add(list, [sizes.batch, sizes.tokens, sizes.channels()], skip);
            concat(list, sizes.batch, sizes.channels());
            if list.is_micro() {
                add(list, [3, 1, 65], 0);
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                add(list, [a.batch, a.tokens, a.channels], a.tokens / 2);
                concat(list, a.batch, a.channels);
            }
            add(list, [3, 1, 256], 0);
        }
        Scale::Heads => {}
    }
}

fn add(list: &mut List, shape: [usize; 3], skip: usize) {
    let pools = [Pool::Token(shape[1] - 1), Pool::Mean { skip }, Pool::Max { skip }];
    for pool in pools {
        list.push(Op::Pool(pool), vec![activation(&shape)]);
    }
}

fn concat(list: &mut List, batch: usize, channels: usize) {
    let pair = vec![activation(&[batch, channels]), activation(&[batch, 7])];
    list.push(Op::ConcatChannels(ConcatChannels), pair);
}
