//! The cases of a validation: each op and kernel, in each form, at each size. There is one file per op, named
//! after it.

mod activation;
mod add;
mod attention;
mod attention_rope;
mod attention_statistics;
mod case;
mod layer_norm;
mod list;
mod patch_extract;
pub(super) mod pillow;
mod resampling;
mod resize;
mod softmax;
mod swiglu;

use super::config::Config;
use hipvit::graph::cases::Cases;
pub(super) use hipvit::graph::cases::{Operand, Role};

#[cfg(test)]
pub(super) use attention::Mask;
pub(super) use attention::attention_parts;
pub(super) use case::{Addresses, Case, KernelForm, Work};
use list::List;
pub(super) use patch_extract::patch_part;
pub(super) use resampling::Resize;

/// Functions that add the cases of an op to a list.
const CASES: [fn(&mut List); 9] = [
    add::cases,
    activation::cases,
    swiglu::cases,
    layer_norm::cases,
    attention::cases,
    attention_rope::cases,
    attention_statistics::cases,
    softmax::cases,
    resize::cases,
];

/// Returns all cases of these sizes.
pub(super) fn cases(config: Config) -> Vec<Case> {
    let mut list = List {
        config,
        cases: Vec::new(),
    };
    let of_ops = Cases::of_all_ops(list.scale(), list.is_micro());
    list.cases.extend(of_ops.into_iter().map(|case| Case {
        config,
        work: Work::Op(case.op),
        operands: case.operands,
        in_arena: case.in_arena,
        result: case.result,
    }));
    for add in CASES {
        add(&mut list);
    }
    list.cases
}
