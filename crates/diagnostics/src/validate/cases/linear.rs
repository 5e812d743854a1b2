//! Linear layers: the operations after the GEMM, and the placement of the result.

use super::{
    ACTIVATIONS, AWKWARD, List, Operand, Role, Scale, Work, activation, byte_weight, parameter,
    sparse_weight, with,
};
use hipvit::ops::{Activation, Float8Scale, Levels, Linear, Op, Rounding};
use hipvit::tensor::DType;

const PLAIN: Linear = Linear {
    bias: false,
    activation: None,
    residual: false,
    rounding: None,
};
const BIAS: Linear = Linear { bias: true, ..PLAIN };
const RESIDUAL: Linear = Linear {
    residual: true,
    ..BIAS
};
const GELU: Linear = Linear {
    activation: Some(Activation::GeluErf),
    ..BIAS
};
/// Activations are uniform in ±1. Fixed scales are near that, so that some activations exceed them.
pub(in crate::validate) const LEVELS: [Levels; 3] = [
    Levels::Range,
    Levels::Magnitude,
    Levels::Fixed {
        scale: 0.007,
        zero: 120,
    },
];

/// FP8 scales: 448 steps are 0.9.
const FLOAT8: [Rounding; 2] = [
    Rounding::Float8(Float8Scale::Fixed(0.002)),
    Rounding::Float8(Float8Scale::Row),
];

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, every_form } => {
            let (outer, c) = ([sizes.batch, sizes.tokens], sizes.channels());
            let mut add = |spec, [k, n]: [usize; 2], in_arena| linear(list, &outer, [k, n], spec, in_arena);
            add(PLAIN, [c, c], false);
            add(BIAS, [c, 3 * c], false);
            add(RESIDUAL, [c, c], true);
            add(GELU, [c, 4 * c], false);
            add(RESIDUAL, [4 * c, c], true);
            for (spec, size) in [(BIAS, [c, 3 * c]), (GELU, [c, 4 * c]), (RESIDUAL, [4 * c, c])] {
                for rounding in [Rounding::Int8(Levels::Range)]
                    .into_iter()
                    .chain(FLOAT8)
                    .chain([Rounding::Bf16])
                    .map(Some)
                {
                    add(Linear { rounding, ..spec }, size, spec.residual);
                }
            }
            if every_form {
                add(RESIDUAL, [c, c], false);
                let both = Linear {
                    residual: true,
                    ..GELU
                };
                add(both, [c, c], true);
            }
            linear(list, &[sizes.batch], [c, 1000], BIAS, false);
            for (spec, size) in [(BIAS, [c, 3 * c]), (GELU, [c, 4 * c]), (RESIDUAL, [4 * c, c])] {
                for role in SPARSE {
                    sparse(list, &outer, size, spec, spec.residual, role);
                }
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                for (form, activation) in ACTIVATIONS.into_iter().map(Some).chain([None]).enumerate() {
                    let spec = Linear {
                        bias: form % 2 == 0,
                        activation,
                        residual: form % 3 != 1,
                        rounding: None,
                    };
                    linear(list, &[a.batch, a.tokens], [a.k, a.n], spec, false);
                    let roundings = LEVELS.map(Rounding::Int8).into_iter().chain(FLOAT8);
                    for rounding in roundings.chain([Rounding::Bf16]).map(Some) {
                        let spec = Linear { rounding, ..spec };
                        linear(list, &[a.batch, a.tokens], [a.k, a.n], spec, false);
                    }
                    // Round to the multiples that the kernel and the library need.
                    for (multiple, role) in [4, 8].into_iter().zip(SPARSE) {
                        let k = a.k.next_multiple_of(multiple);
                        let n = if multiple == 8 {
                            a.n.next_multiple_of(8)
                        } else {
                            a.n
                        };
                        sparse(list, &[a.batch, a.tokens], [k, n], spec, spec.residual, role);
                    }
                    // Round to the multiple that FP8 needs on a GPU.
                    let [k, n] = [a.k, a.n].map(|channels| channels.next_multiple_of(16));
                    for rounding in FLOAT8.map(Some) {
                        let spec = Linear { rounding, ..spec };
                        linear(list, &[a.batch, a.tokens], [k, n], spec, spec.residual);
                    }
                    if spec.residual {
                        linear(list, &[a.batch, a.tokens], [a.k, a.n], spec, true);
                    }
                }
            }
        }
        Scale::Heads => {}
    }
}

/// Adds a linear layer with activations `[outer.., k]` and a weight `[n, k]`.
fn linear(list: &mut List, outer: &[usize], extents: [usize; 2], spec: Linear, in_arena: bool) {
    let [k, n] = extents;
    let weight = match spec.rounding {
        None | Some(Rounding::Bf16) => parameter(&[n, k]),
        Some(Rounding::Int8(_)) => byte_weight(&[n, k], DType::I8),
        Some(Rounding::Float8(_)) => byte_weight(&[n, k], DType::F8E4M3),
    };
    of_weight(list, outer, extents, spec, in_arena, weight);
}

/// Layouts of a 2:4 sparse weight on a GPU.
const SPARSE: [Role; 2] = [Role::SparseWeight, Role::CompressedWeight];

/// Adds a linear layer with a 2:4 sparse weight.
fn sparse(list: &mut List, outer: &[usize], extents: [usize; 2], spec: Linear, in_arena: bool, role: Role) {
    let [k, n] = extents;
    of_weight(list, outer, extents, spec, in_arena, sparse_weight(&[n, k], role));
}

fn of_weight(
    list: &mut List,
    outer: &[usize],
    [k, n]: [usize; 2],
    spec: Linear,
    in_arena: bool,
    weight: Operand,
) {
    let mut operands = vec![activation(&with(outer, k)), weight];
    operands.extend(spec.bias.then(|| parameter(&[n])));
    operands.extend(spec.residual.then(|| activation(&with(outer, n))));
    list.push_work(Work::Op(Op::Linear(spec)), operands, in_arena);
}
