//! Rotary position embedding: both pairings, with one table for all heads or one per head, for all tokens or
//! the last ones.

use super::{AWKWARD, List, Scale, activation, parameter};
use hipvit::ops::{Op, Rope, RopePairs};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, every_form } => {
            let extents = [sizes.batch, sizes.tokens, sizes.heads, sizes.head_dim & !1];
            let prefix = usize::from(sizes.tokens > 1);
            forms(list, extents, prefix, every_form);
            if list.is_micro() {
                // One head size whose halves are no whole vectors, and one that is shorter than a vector.
                forms(list, [2, 3, 2, 22], 2, true);
                forms(list, [1, 2, 3, 2], 0, true);
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                for &(heads, head_dim) in a.heads {
                    let prefix = [0, 1, 5][(a.tokens + heads) % 3].min(a.tokens - 1);
                    let even = head_dim.next_multiple_of(2);
                    forms(list, [a.batch, a.tokens, heads, even], prefix, true);
                }
            }
        }
        Scale::Heads => {}
    }
}

/// Adds packed queries, keys and values in place. `every_form` adds queries alone, and results in separate
/// memory.
fn forms(list: &mut List, [batch, tokens, heads, head_dim]: [usize; 4], prefix: usize, every_form: bool) {
    let width = heads * head_dim;
    for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
        for (groups, rotated, table) in [(3, 2, head_dim), (2, 1, width), (1, 1, head_dim)] {
            if groups < 3 && !every_form {
                continue;
            }
            let op = Op::Rope(Rope {
                heads,
                head_dim,
                rotated,
                pairs,
            });
            let table = parameter(&[1, tokens - prefix, table]);
            let operands = vec![activation(&[batch, tokens, groups * width]), table];
            if every_form {
                list.push(op.clone(), operands.clone());
            }
            list.push_in_arena(op, operands);
        }
    }
}
