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

use super::config::{Config, Sizes};
use hipvit::error::Result;
use hipvit::graph::cases::Cases;
pub use hipvit::graph::cases::Operand;
pub(super) use hipvit::graph::cases::Role;
use hipvit::ops::Op;

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

/// Returns a case for each result of one op, with activations inside and outside of the arena.
pub(super) fn op_cases(op: &Op, operands: &[Operand]) -> Result<Vec<Case>> {
    let shapes: Vec<&[usize]> = operands.iter().map(|o| o.shape.as_slice()).collect();
    let results = op.shapes(&shapes);
    let results = results.map_err(|source| hipvit_graph::Error::op(op.name(), op, source))?;
    let shape = shapes.first().copied().unwrap_or_default();
    let config = Config::Custom(Sizes {
        batch: shape.first().copied().unwrap_or(1),
        heads: 1,
        tokens: shape
            .get(1..shape.len().max(2) - 1)
            .unwrap_or_default()
            .iter()
            .product(),
        head_dim: shape.last().copied().unwrap_or(1),
    });
    let case = |result| {
        [false, true].map(|in_arena| Case {
            config,
            work: Work::Op(op.clone()),
            operands: operands.to_vec(),
            in_arena,
            result,
        })
    };
    Ok((0..results.len()).flat_map(case).collect())
}

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
